"""A verifier's hold on a rollout's workspace: numbered calls, which a retry finds again."""

import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import JsonValue

from clotho.errors import EnvironmentFailed
from clotho.sandbox.base import SandboxInstance
from clotho.toolsets.base import ToolSettings
from clotho.toolsets.calls import BoundCall
from clotho.toolsets.dispatch import Dispatcher

LARGEST_FILE = 1 << 30
UNLIMITED = 1 << 40

Result = TypeVar("Result")


@dataclass
class VerifierWorkspace:
    """The Workspace behind a ToolContext; its sandbox opens when the verifier first touches it.

    `failure` is the first error that a call met. It counts even where the author's code swallows it: no
    infrastructure failure becomes a reward.
    """

    rollout: str
    epoch: int
    open: Callable[[], Awaitable[SandboxInstance]]
    dispatcher: Dispatcher
    tools: tuple[str, ...]
    settings: ToolSettings
    failure: Exception | None = None
    state: dict[str, JsonValue] = field(default_factory=dict)

    async def call_tool(self, number: int, name: str, arguments: dict[str, Any]) -> str:
        return await self._watched(self._call_tool(number, name, arguments))

    async def read_bytes(self, path: str) -> bytes | None:
        return await self._watched(self._read_bytes(path))

    async def write_bytes(self, path: str, content: bytes) -> None:
        await self._watched(self._write_bytes(path, content))

    async def _call_tool(self, number: int, name: str, arguments: dict[str, Any]) -> str:
        call = BoundCall(
            rollout=self.rollout,
            scope=("verify", self.epoch, number),
            tool_call_id=f"verify-{number}",
            settings=self.settings.model_copy(
                update={"max_result_chars": UNLIMITED, "max_turn_chars": UNLIMITED, "result_chars": {}}
            ),
            state=self.state,
            instance=await self.open(),
        )
        dispatched = await self.dispatcher.run(name, json.dumps(arguments), self.tools, call)
        self.state.update(dispatched.state)
        return dispatched.content

    async def _read_bytes(self, path: str) -> bytes | None:
        file = await (await self.open()).read_file(path, LARGEST_FILE)
        if file.error == "too_large":
            raise EnvironmentFailed(f"{path} is larger than {LARGEST_FILE} bytes")
        return None if file.error else file.content

    async def _write_bytes(self, path: str, content: bytes) -> None:
        await (await self.open()).write_file(path, content)

    async def _watched(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return await work
        except Exception as error:
            self.failure = self.failure or error
            raise
