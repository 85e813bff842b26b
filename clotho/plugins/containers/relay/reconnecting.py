"""A relay that is opened when it is needed, and again when its stream has ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from clotho.errors import SandboxLost
from clotho.plugins.containers.relay.loop import within
from clotho.plugins.containers.relay.machine import Channel
from clotho.plugins.containers.relay.stream import ANSWER_SECONDS, RelayStream, StreamEnded

T = TypeVar("T")

TRIES = 8
"""Streams in a row that end without an answer, after which something inside the sandbox is taken to end them."""
TRIES_SECONDS = 3 * ANSWER_SECONDS
"""Seconds after the end of the first of them, after which no other is opened: one that is stopped ends late.

They are several time-outs' worth: a host that stalls ends streams as well.
"""
OPENING_SECONDS = 120.0


class Relay:
    """Belongs to the relays' event loop."""

    def __init__(self, opener: Callable[[], Awaitable[Channel]], token: str) -> None:
        self._opener = opener
        self._token = token.encode()
        self._opening: asyncio.Task[RelayStream] | None = None

    async def stream(self) -> RelayStream:
        """The stream that is open: one for all. Raises SandboxLost where there is nothing to be reached."""
        opening = self._opening
        if opening is None or (opening.done() and not _is_open(opening)):
            opening = self._opening = asyncio.ensure_future(self._open_stream())
        # a caller that is cancelled must not end the opening for the others
        return await asyncio.shield(opening)

    async def _open_stream(self) -> RelayStream:
        stream = RelayStream(await within(OPENING_SECONDS, "opening a relay", self._opener()))
        await stream.greet(self._token)
        return stream

    async def steps(self, take: Callable[[RelayStream], Awaitable[T]]) -> T:
        """Take steps that may be taken again, with another stream where one ends."""
        first_end = None
        for _ in range(TRIES):
            try:
                return await take(await self.stream())
            except StreamEnded:
                ended = time.monotonic()
                first_end = ended if first_end is None else first_end
                if ended - first_end > TRIES_SECONDS:
                    break
        raise SandboxLost("relays are ended from inside the sandbox again and again")

    async def ask(self, verb: str, payload: bytes = b"") -> bytes:
        return await self.steps(lambda stream: stream.ask(verb, payload))

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None and opening.done() and not opening.cancelled() and opening.exception() is None:
            await opening.result().close()


def _is_open(opened: asyncio.Task[RelayStream]) -> bool:
    return not opened.cancelled() and opened.exception() is None and opened.result().is_open
