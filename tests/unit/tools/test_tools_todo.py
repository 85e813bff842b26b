from clotho.tools.todo import TodoItem, written


def task(name: str, content: str = "do it", status: str = "pending") -> TodoItem:
    return {"id": name, "content": content, "status": status}


def test_writing_replaces_and_merging_changes_by_id() -> None:
    todos = written([], [task("a"), task("b")])
    merged = written(todos, [{"id": "a", "status": "completed"}, task("c")])
    assert merged == [task("a", status="completed"), task("b"), task("c")]


def test_the_last_mention_of_an_id_counts() -> None:
    assert written([], [task("a", "first"), task("a", "second")]) == [task("a", "second")]
