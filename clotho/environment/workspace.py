"""A rollout's workspace as one verification, or one call of a tool's function, has it."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import JsonValue

from clotho.environment.numbered_calls import CallAnswer, CountedCalls, NumberedCalls, Work
from clotho.errors import (
    CommandConflict,
    EnvironmentFailed,
    FileRefused,
    GradingSandboxLost,
    HostUnavailable,
    SandboxLost,
    TakenOver,
    WorkspaceRefused,
)
from clotho.identifiers.ids import job_key
from clotho.plugin import load, plugins
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.claims import is_first
from clotho.tools.results import INTERRUPTED, problem
from clotho.tools.shell import SLOT, last_job
from clotho.tools.tool import (
    CallContext,
    Question,
    ToolDispatcher,
    ToolOutcome,
    ToolSettings,
    each_time,
    stands,
)

LARGEST_FILE = 1 << 30
UNLIMITED = 1 << 40
A_DAY = 86_400.0


@dataclass
class Workspace:
    """The sandbox behind a ToolContext; it opens when the author's code first touches it.

    `failure` is the first error that a call met. It counts even where the author's code swallows it: no
    infrastructure failure becomes a reward. `refused` is the first error that the agent caused: the author's code
    may handle it.
    """

    rollout: str
    place: tuple[str | int, ...]
    """The place of its calls in the rollout: their keys derive from it."""
    open: Callable[[], Coroutine[Any, Any, SandboxInstance]]
    dispatcher: ToolDispatcher
    tools: tuple[str, ...]
    settings: ToolSettings
    once: Callable[[str, Callable[[], Awaitable[ToolOutcome]]], Awaitable[ToolOutcome]] = each_time
    """Do a part of a call and journal its outcome under a name, or find that of an earlier attempt."""
    require_claim: Callable[[], Awaitable[None]] = stands
    """Raise TakenOver where another process has taken over what the calls are made for."""
    lease: int | None = None
    """The number of the lease that its calls are made under; None where `place` tells sandboxes apart."""
    start: str | None = None
    """Key of the job that has left the directory which the verifier starts in."""
    failure: Exception | None = None
    refused: WorkspaceRefused | None = None
    closed: bool = False
    state: dict[str, JsonValue] = field(default_factory=dict)
    calls: NumberedCalls = field(default_factory=CountedCalls)
    asked: Counter[str] = field(default_factory=Counter)
    """How often the judge was asked each thing."""
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
                calls=self.calls,
                parent=self,
            )
        return self._grading

    async def instance(self) -> SandboxInstance:
        """The instance, opened once; its first command goes on from the job `start`."""
        if self._opening is None:
            self._opening = asyncio.create_task(self.open())
        return self._started(await self._opening)

    async def instance_to_read(self, path: str) -> SandboxInstance:
        """Choose the instance to read `path` in: the agent's files are read without a process before a command."""
        if self._opening is None and self.open_to_read is not None:
            if self._opening_to_read is None:
                self._opening_to_read = asyncio.create_task(self.open_to_read())
            instance = self._started(await self._opening_to_read)
            # asked again: a command may have begun meanwhile, after which its instance has the files
            if self._opening is None and instance.is_agents(path):
                return instance
        return await self.instance()

    def _started(self, instance: SandboxInstance) -> SandboxInstance:
        if self.start is not None:
            self.state.setdefault(SLOT, {"job": self.start})
        return instance

    # ---- the calls of a ToolContext ----

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        tool = self.dispatcher.tool(name)
        # a command is found by its job's key, and reading changes nothing: neither has its beginning journalled
        found_again = name == "terminal" or (tool is not None and tool.read_only)
        answer = await self._answer(
            "call_tool", (name, arguments), not found_again, partial(self._call_tool, name, arguments)
        )
        assert answer.text is not None
        return answer.text

    async def ask_judge(self, prompt: str) -> str | None:
        return (await self._answer("ask_judge", (prompt,), False, partial(self._ask_judge, prompt))).text

    async def read_bytes(self, path: str, max_bytes: int) -> bytes | None:
        read = partial(self._read_bytes, path, min(max_bytes, LARGEST_FILE))
        return (await self._answer("read_bytes", (path, max_bytes), False, read)).content

    async def write_bytes(self, path: str, content: bytes) -> None:
        await self._answer("write_bytes", (path, content), True, partial(self._write_bytes, path, content))

    async def hidden_files(self) -> str:
        answer = await self._answer("hidden_files", (), False, self._hidden_files)
        assert answer.text is not None
        return answer.text

    async def host_failed(self, reason: str) -> None:
        self._first.failure = self._first.failure or HostUnavailable(reason)

    async def close(self) -> None:
        """Refuse further calls: whatever of the author's code still runs, its attempt is over."""
        self._first.closed = True

    async def _answer(self, name: str, arguments: Sequence[object], changes: bool, work: Work) -> CallAnswer:
        """Make a call, or answer it as before; keep its error if it is the first, and raise it."""
        if self._first.closed:
            raise TakenOver("this attempt at the author's code is over")
        try:
            await self._first.require_claim()
            answer = await self.calls.answer(
                f"grading.{name}" if self.parent else name, arguments, changes, work
            )
        except WorkspaceRefused as refused:
            self._first.refused = self._first.refused or refused
            raise
        except Exception as error:
            # a type of its own: a SandboxLost would have the agent's sandbox replaced, which is still there
            if isinstance(error, SandboxLost) and self.parent is not None:
                error = GradingSandboxLost(f"the sandbox for grading: {error}", error.exhausted)
            self._first.failure = self._first.failure or error
            raise error
        self.state.update(answer.state)
        return answer

    async def _call_tool(self, name: str, arguments: dict[str, Any], number: int) -> CallAnswer:
        place = "-".join(map(str, self.place))
        claims: list[bool] = []

        async def claim() -> bool:
            claims.append(await is_first(self.once, f"{place}-{number}-claim"))
            return claims[-1]

        # a verifier judges whole results, and its own time bounds its commands
        unlimited = {
            "longest_command_seconds": A_DAY,
            "max_result_chars": UNLIMITED,
            "max_turn_chars": UNLIMITED,
            "result_chars": {},
        }
        call = CallContext(
            rollout=self.rollout,
            call=(*self.place, number),
            lease=self.lease,
            tool_call_id=f"{self.place[0]}-{number}",
            settings=self.settings.model_copy(update=unlimited),
            instance=await self.instance(),
            state=self.state,
            claim=claim,
            once=lambda name, work: self.once(f"{place}-{number}-{name}", work),
        )
        dispatched = await self.dispatcher.run(name, json.dumps(arguments), self.tools, call)
        # the author's code would judge by this notice: it begins anew instead
        if False in claims and dispatched.content == problem(INTERRUPTED).content:
            raise CommandConflict(f"{name}: {INTERRUPTED}")
        return CallAnswer(text=dispatched.content, state=dispatched.state)

    async def _ask_judge(self, prompt: str, _: int) -> CallAnswer:
        # counted for both sandboxes: the number is all that tells two questions of one text apart
        asked = self._first.asked
        number, asked[prompt] = asked[prompt], asked[prompt] + 1
        # without an epoch: a verification that begins anew finds the verdicts that were paid for
        key = job_key(self.rollout, "judge")
        question = Question(prompt, number, key, self.settings, self.once, self.dispatcher.variable)
        judges = [plugin.judge for plugin in plugins().values() if plugin.judge is not None]
        return CallAnswer(text=await load(judges[0])(question) if judges else None)

    async def _read_bytes(self, path: str, max_bytes: int, _: int) -> CallAnswer:
        instance = await self.instance_to_read(path)
        file = await instance.read_file(path, max_bytes, last_job(self.state))
        if file.error == "too_large":
            raise WorkspaceRefused(f"{path} is larger than {max_bytes} bytes")
        return CallAnswer(content=None if file.error else file.content)

    async def _write_bytes(self, path: str, content: bytes, number: int) -> CallAnswer:
        lease = () if self.lease is None else (self.lease,)
        key = job_key(self.rollout, *self.place, *lease, "write", number, ascii(path))
        instance = await self.instance()
        try:
            await instance.write_file(path, content, last_job(self.state), key)
        except FileRefused as refused:
            # the agent may have put a directory or a FIFO there: elsewhere the path is the author's mistake
            if instance.is_agents(path):
                raise WorkspaceRefused(f"writing {refused}") from refused
            raise
        return CallAnswer()

    async def _hidden_files(self, _: int) -> CallAnswer:
        folder = (await self.instance()).hidden_files
        if folder is None:
            raise EnvironmentFailed(
                "keep_services: there are no hidden files where the agent's processes live"
            )
        return CallAnswer(text=folder)

    @property
    def _first(self) -> "Workspace":
        return self.parent or self
