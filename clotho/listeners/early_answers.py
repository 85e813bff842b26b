"""Answers that are given before a request's body was read."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 16 * 2**20
SECONDS = 5.0


class EarlyAnswers:
    """Reads what is left of a body before an answer starts, and drops it.

    A connection that is closed with unread bytes is reset, and a client that still writes never sees its answer.
    Bodies of more than MOST_BYTES, or that aren't sent within SECONDS, are left unread.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "expect" in Headers(scope=scope):  # such a client waits before it sends
            return await self._app(scope, receive, send)
        body = _Body(receive)

        async def send_after_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                await body.drop_rest()
            await send(message)

        await self._app(scope, body.receive, send_after_body)


class _Body:
    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._more = True

    async def receive(self) -> Message:
        message = await self._receive()
        self._more = bool(message.get("more_body", False))
        return message

    async def drop_rest(self) -> None:
        dropped = 0
        try:
            async with asyncio.timeout(SECONDS):
                # a client's leaving ends it, too: that message has no more_body
                while self._more and dropped < MOST_BYTES:
                    dropped += len((await self.receive()).get("body", b""))
        except TimeoutError:
            return
