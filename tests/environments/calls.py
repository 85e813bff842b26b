"""The calls of a context, answered without a sandbox, for tests of what becomes of an author's code."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clotho.environment import AgentResult
from clotho.environment.handles import EnvironmentHandle
from clotho.errors import SandboxLost
from tests.support import eventually

RESULT = AgentResult(
    messages=[{"role": "user", "content": "task"}],
    turns_used=1,
    finished_naturally=True,
    reasoning_per_turn=[None],
    tool_errors=[],
)


@dataclass
class Calls:
    """Keeps files in memory, and answers every command by its argument."""

    environment: EnvironmentHandle | None = None
    """Asked for its hidden files, as verification asks for them in the middle of a call."""
    files: dict[str, bytes] = field(default_factory=dict)
    lost: bool = False
    claimed: int = 0

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        if self.lost:
            raise SandboxLost("the sandbox is gone", "memory")
        return json.dumps({"output": arguments["command"].removeprefix("echo ") + "\n", "exit_code": 0})

    async def ask_judge(self, prompt: str) -> str | None:
        return None

    async def read_bytes(self, path: str, max_bytes: int) -> bytes | None:
        return self.files.get(path)

    async def write_bytes(self, path: str, content: bytes) -> None:
        self.files[path] = content

    async def hidden_files(self) -> str:
        assert self.environment is not None
        hidden = await self.environment.hidden_files({})
        assert hidden["bytes"] == bytes(range(256))
        return f"/hidden of {hidden['pid'].decode()}"

    async def host_failed(self, reason: str) -> None:
        raise AssertionError(reason)

    async def claim(self) -> bool:
        self.claimed += 1
        return self.claimed == 1

    @property
    def grading(self) -> "Calls":
        return Calls(files={"/work/a": b"of grading"})


def is_running(process: int) -> bool:
    """Whether it runs: one that has ended may still be waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(condition: Callable[[], bool], what: str) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(holds, what)
