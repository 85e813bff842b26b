"""A scripted model that keeps some of its callers waiting until a test lets them go."""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from clotho.testing.script import Policy, Script
from clotho.testing.scripted_model import ScriptedModel
from tests.support import eventually

POLL_SECONDS = 0.02
FIRST_TURNS = rb'"messages"(?!.*"role":\s*"assistant")'
LATER_TURNS = rb'"role":\s*"assistant"'


def after_turns(number: int) -> bytes:
    """A pattern of the calls of conversations in which the model has spoken so often, or more often."""
    return rb'("role":\s*"assistant".*){%d}' % number


class Holding(ScriptedModel):
    """Answers at once, but holds the calls whose bodies match a pattern until `release` is set."""

    def __init__(self, script: Script, held: bytes, policy: Policy | None = None) -> None:
        super().__init__(script, policy)
        self.release = threading.Event()
        self.holds: set[str] = set()
        """Keys of the calls that it has held."""
        self.hold(held)
        self._answers = self.app
        self.app = Starlette(routes=[Mount("/", self._hold)])

    def hold(self, held: bytes) -> None:
        """Hold the calls that match another pattern, and let those go that don't."""
        self._held = re.compile(held, re.DOTALL)
        self.holds.clear()

    async def held(self, calls: int) -> None:
        """Wait until it has held so many."""

        async def so_many() -> bool:
            return len(self.holds) >= calls

        await eventually(so_many, f"{calls} calls that the model holds")

    async def _hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = await _whole(receive)
        if self._held.search(asked.get("body", b"")):
            self.holds.add(dict(scope["headers"]).get(b"idempotency-key", b"").decode())
            while not self.release.is_set() and self._held.search(asked["body"]):
                await asyncio.sleep(POLL_SECONDS)
        messages = iter([asked])

        async def again() -> Message:
            return next(messages, None) or await receive()

        await self._answers(scope, again, send)


async def _whole(receive: Callable[[], Awaitable[Message]]) -> Message:
    """The whole body of a request as one message, however many it came in."""
    message = await receive()
    body = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    return {**message, "body": body} if message["type"] == "http.request" else message
