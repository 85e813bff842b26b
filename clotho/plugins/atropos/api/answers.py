"""Requests to atroposlib's application, with its responses held back until the disk has what they say."""

from collections.abc import Sequence

from atroposlib.api.server import app
from starlette.responses import JSONResponse
from starlette.types import Message, Scope, Send


class Answer:
    """A response of the application, held back."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    @classmethod
    def of(cls, content: object) -> "Answer":
        response = JSONResponse(content)
        start = {"type": "http.response.start", "status": 200, "headers": response.raw_headers}
        return cls([start, {"type": "http.response.body", "body": bytes(response.body)}])

    @property
    def status(self) -> int:
        return int(self._messages[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self._messages[1:])

    async def send(self, send: Send) -> None:
        for message in self._messages:
            await send(message)


async def asked(scope: Scope, body: bytes) -> Answer:
    """Call atroposlib's application; its response to a POST isn't compressed, so that it can be read."""
    scope = without(scope, b"content-encoding", b"content-length", b"transfer-encoding")
    if scope["method"] == "POST":
        scope = without(scope, b"accept-encoding")
    headers = [*scope["headers"], (b"content-length", str(len(body)).encode())]
    messages: list[Message] = []
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return unread.pop() if unread else {"type": "http.disconnect"}

    async def keep(message: Message) -> None:
        messages.append(message)

    await app({**scope, "headers": headers}, receive, keep)
    return Answer(messages)


def without(scope: Scope, *names: bytes) -> Scope:
    return {**scope, "headers": [pair for pair in scope["headers"] if pair[0].lower() not in names]}
