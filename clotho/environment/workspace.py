"""A verifier's hold on a rollout's workspace: numbered calls, which a retry finds again."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pydantic import JsonValue

from clotho.errors import EnvironmentFailed, FileRefused, HostUnavailable, WorkspaceRefused
from clotho.host_failures import described, is_host_failure
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.calls import BoundCall
from clotho.tools.dispatch import Dispatcher
from clotho.tools.shell import SLOT, last_job
from clotho.tools.tool import ToolSettings

LARGEST_FILE = 1 << 30
UNLIMITED = 1 << 40
A_DAY = 86_400.0

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
Method = Callable[Concatenate["VerifierWorkspace", Parameters], Coroutine[Any, Any, Result]]


def _watched(method: Method[Parameters, Result]) -> Method[Parameters, Result]:
    """Record the first error of the workspace's calls, as `failure` or as `refused`, and raise it."""

    @wraps(method)
    async def watched(
        workspace: "VerifierWorkspace", /, *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        try:
            return await method(workspace, *arguments, **named)
        except WorkspaceRefused as refused:
            workspace.refused = workspace.refused or refused
            raise
        except Exception as error:
            workspace.failure = workspace.failure or error
            raise

    return watched


@dataclass
class VerifierWorkspace:
    """The sandbox behind a ToolContext; it opens when the verifier first touches it.

    `failure` is the first error that a call met. It counts even where the author's code swallows it: no
    infrastructure failure becomes a reward. `refused` is the first that was the agent's doing: that one the
    author's code may handle.
    """

    rollout: str
    epoch: int
    open: Callable[[], Awaitable[SandboxInstance]]
    dispatcher: Dispatcher
    tools: tuple[str, ...]
    settings: ToolSettings
    start: str | None = None
    """Key of the job that has left the directory which the verifier starts in."""
    failure: Exception | None = None
    refused: WorkspaceRefused | None = None
    state: dict[str, JsonValue] = field(default_factory=dict)

    @_watched
    async def call_tool(self, number: int, name: str, arguments: dict[str, Any]) -> str:
        instance = await self._opened()
        call = BoundCall(
            rollout=self.rollout,
            call=("verify", self.epoch, number),
            tool_call_id=f"verify-{number}",
            settings=self.settings.model_copy(
                update={
                    "longest_command_seconds": A_DAY,
                    "max_result_chars": UNLIMITED,
                    "max_turn_chars": UNLIMITED,
                    "result_chars": {},
                }
            ),
            state=self.state,
            instance=instance,
        )
        dispatched = await self.dispatcher.run(name, json.dumps(arguments), self.tools, call)
        self.state.update(dispatched.state)
        return dispatched.content

    @_watched
    async def read_bytes(self, path: str, max_bytes: int) -> bytes | None:
        max_bytes = min(max_bytes, LARGEST_FILE)
        file = await (await self._opened()).read_file(path, max_bytes, last_job(self.state))
        if file.error == "too_large":
            raise WorkspaceRefused(f"{path} is larger than {max_bytes} bytes")
        return None if file.error else file.content

    @_watched
    async def write_bytes(self, path: str, content: bytes) -> None:
        instance = await self._opened()
        try:
            await instance.write_file(path, content, last_job(self.state))
        except FileRefused as refused:
            if instance.is_agents(path):
                raise WorkspaceRefused(f"writing {refused}") from refused
            raise

    @_watched
    async def hidden_files(self) -> str:
        folder = (await self._opened()).hidden_files
        if folder is None:
            raise EnvironmentFailed(
                "keep_services: there are no hidden files where the agent's processes live"
            )
        return folder

    async def _opened(self) -> SandboxInstance:
        """The instance; its first command goes on from the job `start`."""
        instance = await self.open()
        if self.start is not None:
            self.state.setdefault(SLOT, {"job": self.start})
        return instance

    async def on_host(self, step: Callable[[], Result]) -> Result:
        """What is wrong with a path is the author's; failures of the host count as those of calls do."""
        try:
            return await asyncio.to_thread(step)
        except Exception as error:
            if is_host_failure(error):
                self.failure = self.failure or HostUnavailable(described(error))
            raise
