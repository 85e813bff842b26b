"""The `todo` tool: a model's list of what it has to do, kept in the rollout's state."""

from typing import Any, cast

from clotho.tools.results import problem, text
from clotho.tools.schemas import boolean, object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

STATUSES = ("pending", "in_progress", "completed", "cancelled")
SLOT = "todo"
MOST_CHARS = 100_000
"""Characters of the whole list: each change is journalled with all of it."""

TodoItem = dict[str, Any]


class Todo(Tool):
    name = "todo"
    toolset = "todo"
    sandboxed = False
    description = (
        "Keep a task list for work that takes several steps. Call it without arguments to read the list; "
        "pass `todos` to replace it, or with merge=true to change some tasks by id and add new ones. The "
        "order is the priority. Keep one task in_progress at a time, and mark it completed as soon as it is done. "
        "The result is always the whole list."
    )
    parameters = object_schema(
        todos={
            "type": "array",
            "description": "The tasks to write. Leave it out to read the list.",
            "items": {
                "type": "object",
                "properties": {
                    "id": string("Unique name of the task"),
                    "content": string("What is to be done"),
                    "status": string("Where it stands", one_of=STATUSES),
                },
                "required": ["id"],
            },
        },
        merge=boolean(
            "true changes tasks by id and keeps the others; false replaces the list", default=False
        ),
    )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        current = cast(list[TodoItem], context.state.get(SLOT, []))
        if "todos" not in arguments:
            return ToolOutcome(content=shown(current))
        todos = written(current if arguments.get("merge", False) else [], arguments["todos"])
        if bare := next((todo["id"] for todo in todos if not todo["content"]), None):
            return problem(f"task '{bare}' is new and needs content")
        if len(list_ := shown(todos)) > MOST_CHARS:
            return problem(
                f"the list would have {len(list_):,} characters, over the maximum of {MOST_CHARS:,}"
            )
        return ToolOutcome(content=list_, state={SLOT: list(todos)})


def written(current: list[TodoItem], changes: list[TodoItem]) -> list[TodoItem]:
    """Apply `changes` to `current` by id: new tasks come last, and the last mention of an id counts."""
    by_id = {todo["id"]: todo for todo in current}
    for change in changes:
        before = by_id.get(change["id"], {"id": change["id"], "content": "", "status": "pending"})
        by_id[change["id"]] = {name: change.get(name, before[name]) for name in ("id", "content", "status")}
    return list(by_id.values())


def shown(todos: list[TodoItem]) -> str:
    counts = {status: sum(todo["status"] == status for todo in todos) for status in STATUSES}
    return text(todos=todos, summary={"total": len(todos), **counts})
