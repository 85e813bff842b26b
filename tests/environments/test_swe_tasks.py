"""swe_tasks: each repository can be mended, and isn't by doing nothing."""

import pytest

from clotho.testing import sandboxed_context
from environments._swe_repositories import REPOSITORIES
from environments.swe_tasks import FOLDER, SweTasks, SweTasksConfig, committed


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_repository_is_right_when_mended_only(name: str) -> None:
    with sandboxed_context(SweTasks, {"id": name}) as task:
        before = task.reward()
    assert before.score == 0.0
    assert before.breakdown["cases"] < 1
    solution = SweTasks(SweTasksConfig()).solution({"id": name})
    with sandboxed_context(SweTasks, {"id": name}) as task:
        for path, content in solution.files.items():
            task.agent.write_bytes(path, content.encode() if isinstance(content, str) else content)
        status = task.agent.terminal(f"cd {FOLDER} && git status --porcelain && git log --oneline | wc -l")
        assert status["output"].strip() == str(len(REPOSITORIES[name].commits))
        assert task.agent.terminal(solution.command)["exit_code"] == 0
        assert task.reward().score == 1.0


@pytest.mark.slow
def test_code_that_ends_the_process_or_prints_answers_earns_nothing() -> None:
    cheats = ("import os; os._exit(0)", "print('[[], []]\\n' * 9)", "raise SystemExit", "syntax error")
    for cheat in cheats:
        with sandboxed_context(SweTasks, {"id": "spans"}) as task:
            task.agent.write_bytes(f"{FOLDER}/spans.py", cheat.encode())
            assert task.reward().score == 0.0


def test_repositories_are_the_same_every_time() -> None:
    repository = REPOSITORIES["spans"]
    assert committed(repository) == committed(repository)
