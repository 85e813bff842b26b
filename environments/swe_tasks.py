"""Repair a small git repository: an issue says what is wrong, and cases that the agent never sees must hold.

The repositories are made by the worker's own git. What the agent's code returns for a case is judged in the worker.
"""

import json
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from clotho.environment import (
    AgentResult,
    Environment,
    EnvironmentConfig,
    Item,
    Reward,
    Solution,
    ToolContext,
)
from clotho.errors import InvalidInput
from environments._swe_repositories import REPOSITORIES, Repository

FOLDER = "/work/repository"
LONGEST_ANSWER = 20_000
CALL = """\
import json, sys
sys.path.insert(0, ".")
found = {}
exec(sys.argv[1], found)
for arguments in json.loads(sys.argv[2]):
    try:
        print(json.dumps(found["case"](*arguments)))
    except Exception as error:
        print(json.dumps({"raised": type(error).__name__}))
"""
AUTHOR = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"), ("DATE", "2024-01-01T00:00:00Z"))
}
GIT = {
    **AUTHOR,
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "HOME": "/nonexistent",
}


class SweTasksConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal", "file", "todo")
    system_prompt: str | None = "You are a careful engineer working in a Linux sandbox. Use your tools."


class SweTasks(Environment):
    """The reward is 1 where every case holds."""

    config_class = SweTasksConfig

    async def setup(self) -> None:
        self._names = iter(REPOSITORIES)

    async def get_next_item(self) -> Item | None:
        name = next(self._names, None)
        return None if name is None else {"id": name}

    def format_prompt(self, item: Item) -> str:
        issue = REPOSITORIES[str(item["id"])].issue
        return (
            f"The git repository in {FOLDER} has an issue:\n\n{issue}\n\nMend it there. Hidden tests decide."
        )

    def workspace_files(self, item: Item) -> Mapping[str, bytes]:
        files = committed(REPOSITORIES[str(item["id"])])
        return {f"{FOLDER}/{path}": content for path, content in files.items()}

    def solution(self, item: Item) -> Solution:
        repository = REPOSITORIES[str(item["id"])]
        mended = {"/tmp/mended.py": repository.mended}
        return Solution(command=f"cp /tmp/mended.py {FOLDER}/{repository.module}", files=mended)

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        repository = REPOSITORIES[str(item["id"])]
        arguments = json.dumps([given for given, _ in repository.cases])
        call = f"python3 -c {shlex.quote(CALL)} {shlex.quote(repository.call)} {shlex.quote(arguments)}"
        ran = ctx.terminal(f"cd {FOLDER} && $CLOTHO_AS_AGENT timeout 60 {call} 2>/dev/null")
        lines = str(ran["output"])[:LONGEST_ANSWER].splitlines()
        answers = [parsed(line) for line in lines][: len(repository.cases)]
        held = sum(
            answer == expected for answer, (_, expected) in zip(answers, repository.cases, strict=False)
        )
        return Reward(
            score=float(held == len(repository.cases)), breakdown={"cases": held / len(repository.cases)}
        )


def committed(repository: Repository) -> dict[str, bytes]:
    """The files of a git repository, its history included; the same bytes every time."""
    with tempfile.TemporaryDirectory(prefix="clotho-swe-") as name:
        folder = Path(name)
        git(folder, "init", "--quiet", "--template=", "--initial-branch=main")
        for message, files in repository.commits:
            for path, text in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
            git(folder, "add", "--all")
            git(folder, "commit", "--quiet", "--no-gpg-sign", "--message", message)
        (folder / ".git" / "index").unlink()  # it has the times of this folder; git makes another
        git(folder, "read-tree", "HEAD")
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }


def git(folder: Path, *words: str) -> None:
    """Raises InvalidInput where this host has no git."""
    try:
        subprocess.run(["git", *words], cwd=folder, env=GIT, check=True, capture_output=True)
    except FileNotFoundError as error:
        raise InvalidInput(
            "swe_tasks makes repositories with git: install it where the workers run"
        ) from error


def parsed(line: str) -> JsonValue:
    """JSON that the agent's code printed; None for anything else."""
    try:
        value: JsonValue = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value
