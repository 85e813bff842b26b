"""A scripted model that keeps some of its callers waiting until a test lets them go."""

import asyncio
import re
import threading

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from clotho.testing.script import Script
from clotho.testing.scripted_model import ScriptedModel

LONGEST_SECONDS = 120.0


class Holding(ScriptedModel):
    """Answers at once, but holds the calls whose bodies match a pattern until `release` is set."""

    def __init__(self, script: Script, held: bytes) -> None:
        super().__init__(script)
        self.release = threading.Event()
        self._held = re.compile(held)
        self._answers = self.app
        self.app = Starlette(routes=[Mount("/", self._hold)])

    async def _hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = await receive()
        if self._held.search(asked["body"]):
            await asyncio.to_thread(self.release.wait, LONGEST_SECONDS)
        messages = iter([asked])

        async def again() -> Message:
            return next(messages, None) or await receive()

        await self._answers(scope, again, send)
