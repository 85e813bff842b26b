"""Calls of the tools under conformance test, and deaths of the worker between two steps of one."""

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from clotho.config import variable
from clotho.identifiers.ids import call_id
from clotho.plugin_settings import sections_of
from clotho.plugins.browser.settings import BrowserSettings
from clotho.plugins.mcp.settings import McpSettings
from clotho.plugins.skills.settings import SkillsSettings
from clotho.plugins.web.settings import WebSettings
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.delegation import DelegatedTask, DelegationSettings
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.tool import CallContext, Dispatched, ToolOutcome, ToolSettings
from tests.support import PATIENCE_SECONDS
from tests.tools.ledgers import HOST_ACCOUNTS, MCP_SERVERS, MCP_TOOLS, SERVERS, START
from tests.tools.model_service import shared_server
from tests.tools.row import SESSION, Arguments, Call
from tests.tools.rows import ANSWERS, SITE

T = TypeVar("T")

REGISTRY = Registry.discover().with_tools(MCP_TOOLS)
SETTINGS = ToolSettings(
    plugins=sections_of(
        WebSettings(provider="offline", corpus=str(Path(__file__).parent / "pages.jsonl")),
        SkillsSettings(folder=str(Path(__file__).parent / "skills")),
        shared_server().services(max_calls=10_000),
        BrowserSettings(sites={SITE: ANSWERS}, seconds=PATIENCE_SECONDS),
        McpSettings(servers=MCP_SERVERS),
    ),
    delegation=DelegationSettings(),
)
DELEGATED = DelegatedTask(status="completed", turns=2, said="There are three.")
"""What a rollout's workflow has had done before the call is made."""
CLEAR = "find /work /tmp -mindepth 1 -delete 2>/dev/null; cd /work"


class WorkerDied(BaseException):
    """The process that ran a call ended: nothing after it happens."""


class Death:
    """The death of a worker at its request number `last`, before or after that is served."""

    def __init__(self, last: int, served: bool) -> None:
        self._left = last
        self._served = served

    async def at(self, request: Callable[[], Awaitable[T]]) -> T:
        self._left -= 1
        if self._left == 0 and not self._served:
            raise WorkerDied
        result = await request()
        if self._left == 0:
            raise WorkerDied
        return result


class MortalInstance:
    """A sandbox's instance whose worker dies at a request to it."""

    def __init__(self, instance: SandboxInstance, death: Death) -> None:
        self._instance = instance
        self._death = death

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._instance, name)
        if not inspect.iscoroutinefunction(member):
            return member
        return lambda *arguments, **named: self._death.at(lambda: member(*arguments, **named))


class ToolCalls:
    """Calls of one rollout, each with the state that the earlier ones left."""

    def __init__(self, sandbox: SandboxInstance | None, rollout: str) -> None:
        self.sandbox = sandbox
        self.rollout = rollout
        self.settings = SETTINGS
        self.dispatcher = Dispatcher(REGISTRY, variable)
        self.number = 0
        self.state: dict[str, Any] = {}
        self.seen: dict[str, Any] = {}
        self.session = ""
        self.lease = 0
        self.begun: set[int] = set()
        self.parts: dict[tuple[int, str], ToolOutcome] = {}
        HOST_ACCOUNTS.write_text(START)

    async def start_over(self) -> None:
        """Empty the sandbox's folders and end its processes; the next calls are made as in another sandbox."""
        HOST_ACCOUNTS.write_text(START)
        self.settings, self.state = SETTINGS, {}
        if self.sandbox is not None:
            for session in await self.sandbox.sessions():
                await self.sandbox.kill(session.key)
        await self.shell(CLEAR)
        self.state, self.lease = {}, self.lease + 1

    def next(self) -> None:
        self.number += 1
        self.seen = dict(self.state)

    def context(self, instance: SandboxInstance | None = None, death: Death | None = None) -> CallContext:
        """The context of the current call; `death` is the worker's at a request to the journal."""
        number = self.number

        async def claimed() -> bool:
            first = number not in self.begun
            self.begun.add(number)
            return first

        async def once(name: str, work: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
            if (number, name) not in self.parts:
                self.parts[number, name] = await work()
            return self.parts[number, name]

        return CallContext(
            rollout=self.rollout,
            call=("call", call_id(self.number, 0)),
            tool_call_id=f"call_{self.number}",
            settings=self.settings,
            state=self.seen,
            instance=instance or self.sandbox,
            lease=self.lease,
            claim=claimed if death is None else lambda: death.at(claimed),
            once=once if death is None else lambda name, work: death.at(lambda: once(name, work)),
            delegated=DELEGATED,
        )

    async def run(self, name: str, arguments: Arguments | str) -> Dispatched:
        """The outcome of the next call."""
        self.next()
        done = await self.attempt(name, arguments)
        self.state |= done.state
        if "session_id" in (found := fields(done)):
            self.session = str(found["session_id"])
        return done

    async def attempt(self, name: str, arguments: Arguments | str, death: Death | None = None) -> Dispatched:
        """One attempt at the current call; the worker may die at one of its requests.

        Those of a tool that runs in the sandbox are to that, others' to the journal.
        """
        text = arguments if isinstance(arguments, str) else json.dumps(self.named(arguments))
        context = self.context()
        if death is not None and (tool := REGISTRY.get(name)) is not None:
            mortal: Any = MortalInstance(context.sandbox, death)
            context = self.context(mortal) if tool.sandboxed else self.context(death=death)
        return await self.dispatcher.run(name, text, self.dispatcher.names, context)

    async def dies(self, name: str, arguments: Arguments, last: int, served: bool) -> bool:
        """Make the next call by a worker that dies at its request number `last`; False where it made fewer."""
        self.next()
        try:
            await self.attempt(name, arguments, Death(last, served))
        except WorkerDied:
            await SERVERS.close()
            return True
        return False

    async def replay(
        self, name: str, arguments: Arguments, shown: Dispatched, offered: Sequence[str] = REGISTRY.names
    ) -> Dispatched | None:
        """Repeat the current call in another sandbox."""
        text = json.dumps(self.named(arguments))
        context = replace(self.context(), lease=self.lease + 1)
        return await self.dispatcher.replay(name, text, offered, context, shown.content, shown.spilled)

    async def all(self, calls: Sequence[Call]) -> None:
        """Make calls that are to go well."""
        for name, arguments in calls:
            done = await self.run(name, arguments)
            assert done.failure is None and not done.names_error, (name, done.content)

    async def shell(self, command: str) -> str:
        """What a command prints that starts in /work."""
        state = self.state
        done = await self.run("terminal", {"command": command, "workdir": "/work"})
        self.state = state
        return str(fields(done)["output"])

    async def effect(self, shows: str | Call) -> str:
        """What a command prints that starts in /work, or the result of a call."""
        if isinstance(shows, str):
            return await self.shell(shows)
        return str(fields(await self.run(*shows))["result"])

    def named(self, arguments: Arguments) -> Arguments:
        return {key: self.session if value == SESSION else value for key, value in arguments.items()}


def fields(done: Dispatched, without: Sequence[str] = ()) -> dict[str, Any]:
    """The result's fields; none where it is no JSON object."""
    if not done.content.startswith("{"):
        return {}
    found: dict[str, Any] = json.loads(done.content)
    return {name: value for name, value in found.items() if name not in without}
