"""Calls of the tools under conformance test, and deaths of the worker between two steps of one."""

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clotho.config import variable
from clotho.identifiers.ids import call_id
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.browser.settings import BrowserSettings
from clotho.tools.delegation import DelegatedTask, DelegationSettings
from clotho.tools.dispatch import Dispatched, Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.tool import CallContext, ToolSettings
from clotho.tools.web.settings import WebSettings
from tests.tools.model_service import shared_server
from tests.tools.rows import ANSWERS, SESSION, SITE, Arguments, Call

REGISTRY = Registry.discover()
SETTINGS = ToolSettings(
    web=WebSettings(provider="offline", corpus=str(Path(__file__).parent / "pages.jsonl")),
    skills=str(Path(__file__).parent / "skills"),
    services=shared_server().services(max_calls=10_000),
    browser=BrowserSettings(sites={SITE: ANSWERS}),
    delegation=DelegationSettings(),
)
DELEGATED = DelegatedTask(status="completed", turns=2, said="There are three.")
"""What a rollout's workflow has had done before the call is made."""
CLEAR = "find /work /tmp -mindepth 1 -delete 2>/dev/null; cd /work"


class WorkerDied(BaseException):
    """The process that ran a call ended: nothing after it happens."""


class MortalInstance:
    """A sandbox's instance whose worker dies at its request number `last`, before or after that is served."""

    def __init__(self, instance: SandboxInstance, last: int, served: bool) -> None:
        self._instance = instance
        self._left = last
        self._served = served

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._instance, name)
        if not inspect.iscoroutinefunction(member):
            return member

        async def call(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._served:
                raise WorkerDied
            result = await member(*arguments, **named)
            if self._left == 0:
                raise WorkerDied
            return result

        return call


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

    async def start_over(self) -> None:
        """Empty the sandbox's folders and end its processes."""
        self.settings, self.state = SETTINGS, {}
        if self.sandbox is not None:
            for session in await self.sandbox.sessions():
                await self.sandbox.kill(session.key)
        await self.shell(CLEAR)
        self.state = {}

    def next(self) -> None:
        self.number += 1
        self.seen = dict(self.state)

    def context(self, instance: SandboxInstance | None = None) -> CallContext:
        """The context of the current call."""
        return CallContext(
            rollout=self.rollout,
            call=("call", call_id(self.number, 0)),
            tool_call_id=f"call_{self.number}",
            settings=self.settings,
            state=self.seen,
            instance=instance or self.sandbox,
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

    async def attempt(
        self, name: str, arguments: Arguments | str, instance: SandboxInstance | None = None
    ) -> Dispatched:
        """One attempt at the current call."""
        text = arguments if isinstance(arguments, str) else json.dumps(self.named(arguments))
        return await self.dispatcher.run(name, text, self.dispatcher.names, self.context(instance))

    async def dies(self, name: str, arguments: Arguments, last: int, served: bool) -> bool:
        """Make the next call by a worker that dies at its request number `last`; False where it made fewer."""
        self.next()
        mortal: Any = MortalInstance(self.context().sandbox, last, served)
        try:
            await self.attempt(name, arguments, mortal)
        except WorkerDied:
            return True
        return False

    async def replay(
        self, name: str, arguments: Arguments, shown: Dispatched, offered: Sequence[str] = REGISTRY.names
    ) -> Dispatched | None:
        """Repeat the current call in another sandbox."""
        text = json.dumps(self.named(arguments))
        context = replace(self.context(), lease=1)
        return await self.dispatcher.replay(name, text, offered, context, shown.content, shown.spilled)

    async def all(self, calls: Sequence[Call]) -> None:
        for name, arguments in calls:
            await self.run(name, arguments)

    async def shell(self, command: str) -> str:
        """What a command prints that starts in /work."""
        state = self.state
        done = await self.run("terminal", {"command": command, "workdir": "/work"})
        self.state = state
        return str(fields(done)["output"])

    def named(self, arguments: Arguments) -> Arguments:
        return {key: self.session if value == SESSION else value for key, value in arguments.items()}


def fields(done: Dispatched, without: Sequence[str] = ()) -> dict[str, Any]:
    """The result's fields; none where it is no JSON object."""
    if not done.content.startswith("{"):
        return {}
    found: dict[str, Any] = json.loads(done.content)
    return {name: value for name, value in found.items() if name not in without}
