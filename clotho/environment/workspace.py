"""A rollout's workspace as one verification, or one call of a tool's function, has it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import JsonValue

from clotho.errors import (
    EnvironmentFailed,
    GradingSandboxLost,
    HostUnavailable,
    SandboxLost,
    WorkspaceRefused,
)
from clotho.host_failures import described, is_host_failure
from clotho.identifiers.hashed import job_key
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.dispatch import Dispatcher
from clotho.tools.shell import SLOT
from clotho.tools.tool import ToolOutcome, ToolSettings, each_time

Result = TypeVar("Result")


@dataclass
class Workspace:
    """The sandbox behind a ToolContext; it opens when the author's code first touches it.

    `failure` is the first error that a call met. It counts even where the author's code swallows it: no
    infrastructure failure becomes a reward. `refused` is the first that was the agent's doing: that one the
    author's code may handle.
    """

    rollout: str
    place: tuple[str | int, ...]
    """The place of its calls in the rollout: their keys derive from it."""
    open: Callable[[], Coroutine[Any, Any, SandboxInstance]]
    dispatcher: Dispatcher
    tools: tuple[str, ...]
    settings: ToolSettings
    once: Callable[[str, Callable[[], Awaitable[ToolOutcome]]], Awaitable[ToolOutcome]] = each_time
    """Do a part of a call and journal its outcome under a name, or find that of an earlier attempt."""
    lease: int | None = None
    """The number of the lease that its calls are made under; None where `place` tells sandboxes apart."""
    start: str | None = None
    """Key of the job that has left the directory which the verifier starts in."""
    failure: Exception | None = None
    refused: WorkspaceRefused | None = None
    state: dict[str, JsonValue] = field(default_factory=dict)
    calls: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    """How often the judge was asked each thing."""
    writes: int = 0
    """Numbered apart from calls, whose keys don't depend on them."""
    open_grading: Callable[[], Coroutine[Any, Any, SandboxInstance]] | None = None
    """Makes the sandbox that has nothing of the agent's; None where there is none."""
    parent: "Workspace | None" = None
    """The one with the agent's files, which keeps the errors of this one."""
    open_to_read: Callable[[], Coroutine[Any, Any, SandboxInstance]] | None = None
    """Gives an instance to read the agent's files in, before the one for commands is opened; None: that one."""
    _opening: asyncio.Task[SandboxInstance] | None = None
    _opening_to_read: asyncio.Task[SandboxInstance] | None = None
    _grading: "Workspace | None" = None

    @property
    def grading(self) -> "Workspace":
        """The sandbox that has nothing of the agent's, as a workspace."""
        if self.open_grading is None:
            raise EnvironmentFailed("ctx.grading is there in verification alone")
        if self._grading is None:
            self._grading = Workspace(
                rollout=self.rollout,
                place=(*self.place, "grading"),
                open=self.open_grading,
                dispatcher=self.dispatcher,
                tools=self.tools,
                settings=self.settings,
                once=self.once,
                lease=self.lease,
                parent=self,
            )
        return self._grading

    async def instance(self) -> SandboxInstance:
        """The instance, opened once; its first command goes on from the job `start`."""
        if self._opening is None:
            self._opening = asyncio.create_task(self.open())
        return self._started(await self._opening)

    async def instance_to_read(self, path: str) -> SandboxInstance:
        """The instance that a file is read in: no process is started for one of the agent's before a command."""
        if self._opening is None and self.open_to_read is not None:
            if self._opening_to_read is None:
                self._opening_to_read = asyncio.create_task(self.open_to_read())
            instance = self._started(await self._opening_to_read)
            if self._opening is None and instance.is_agents(path):
                return instance
        return await self.instance()

    def _started(self, instance: SandboxInstance) -> SandboxInstance:
        if self.start is not None:
            self.state.setdefault(SLOT, {"job": self.start})
        return instance

    def write_key(self, path: str) -> str:
        """The key of the next write: the same in every attempt that makes the same ones."""
        number, self.writes = self.writes, self.writes + 1
        lease = () if self.lease is None else (self.lease,)
        return job_key(self.rollout, *self.place, *lease, "write", number, ascii(path))

    async def watched(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Do `call`; its error is kept if it is the first, and raised."""
        try:
            return await call
        except WorkspaceRefused as refused:
            self._first.refused = self._first.refused or refused
            raise
        except Exception as error:
            if isinstance(error, SandboxLost) and self.parent is not None:
                error = GradingSandboxLost(f"the sandbox for grading: {error}", error.exhausted)
            self._first.failure = self._first.failure or error
            raise error

    async def on_host(self, step: Callable[[], Result]) -> Result:
        """Run `step` on this host: a wrong path is the author's error, a failure of the host an outage."""
        try:
            return await asyncio.to_thread(step)
        except Exception as error:
            if is_host_failure(error):
                self._first.failure = self._first.failure or HostUnavailable(described(error))
            raise

    @property
    def _first(self) -> "Workspace":
        return self.parent or self
