"""One open relay: requests under way, by their numbers, and their answers. The frames are described in relay.c."""

import asyncio
import errno
import itertools
import os
import struct
from contextlib import suppress

from clotho.errors import SandboxLost, SandboxUnavailable
from clotho.plugins.containers.relay.loop import within
from clotho.plugins.containers.relay.machine import Channel

MAGIC = b"clotho-relay 1\n"
MOST_DATA = 1 << 20
"""Bytes of a frame's content."""
NOISE_BYTES = 64 << 10
"""Most bytes that a platform may send before the relay does."""
GREETING_SECONDS = 60.0
ANSWER_SECONDS = 60.0
"""Seconds within which a relay answers what it answers at once."""
SEND_SECONDS = 120.0
"""Seconds within which a frame is on its way, behind what was sent before it."""
CLOSE_SECONDS = 15.0

_HEAD = struct.Struct(">IQB")


class StreamEnded(SandboxUnavailable):
    """The relay has ended, or can't be reached any more; another may be opened."""


class RelayStream:
    """Belongs to the relays' event loop."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._sending = asyncio.Lock()
        self._received = bytearray()
        self._reading: asyncio.Task[None] | None = None
        self.is_open = True

    async def greet(self, token: bytes) -> None:
        """Prove the token. Raises SandboxLost where no supervisor lives, or one that has another token."""
        greeted = False
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                await self._skip_noise()
                self._reading = asyncio.create_task(self._read())
                await self.ask("H", token)
            greeted = True
        except TimeoutError:
            raise SandboxUnavailable("a sandbox's relay doesn't answer") from None
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.EACCES):
                raise SandboxLost(f"the sandbox's supervisor is gone: {os.strerror(error.errno)}") from error
            raise StreamEnded(f"a sandbox's relay can't begin: {error}") from error
        finally:
            if not greeted:
                await self.close()

    async def _skip_noise(self) -> None:
        while MAGIC not in self._received:
            content = await self._channel.receive()
            self._received += content
            if not content or len(self._received) > NOISE_BYTES:
                raise StreamEnded("what answers in a sandbox is no relay")
        del self._received[: self._received.index(MAGIC) + len(MAGIC)]

    async def ask(self, verb: str, payload: bytes = b"", *, seconds: float | None = ANSWER_SECONDS) -> bytes:
        """The answer; OSError with the relay's errno for a failure. Raises StreamEnded."""
        number, answer = self.begin()
        try:
            await self.send(number, verb, payload)
            return await self.answered(answer, seconds)
        finally:
            self._pending.pop(number, None)

    async def answered(
        self, answer: "asyncio.Future[bytes]", seconds: float | None = ANSWER_SECONDS
    ) -> bytes:
        """The answer to a request that `begin` has begun. Raises as `ask` does."""
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            await self.close()
            raise StreamEnded("a sandbox's relay doesn't answer") from None

    def begin(self) -> tuple[int, "asyncio.Future[bytes]"]:
        number = self.draw()
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        return number, answer

    def draw(self) -> int:
        """A number for a request; by itself, for one that has no answer."""
        return next(self._numbers)

    async def send(self, number: int, verb: str, payload: bytes = b"") -> None:
        async with self._sending:
            if not self.is_open:
                raise StreamEnded("a sandbox's relay has ended")
            frame = _HEAD.pack(len(payload) + 9, number, ord(verb)) + payload
            try:
                await within(SEND_SECONDS, "sending to a sandbox's relay", self._channel.send(frame))
            except SandboxUnavailable as error:
                await self.close()
                raise StreamEnded(str(error)) from error

    async def close(self) -> None:
        """End the stream: requests that wait for an answer fail with StreamEnded."""
        if not self.is_open:
            return
        self.is_open = False
        # the reader closes, too, and must not cancel itself
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(StreamEnded("a sandbox's relay has ended"))
                answer.exception()  # also of one that nobody waits for any more
        with suppress(SandboxUnavailable):
            await within(CLOSE_SECONDS, "closing a sandbox's relay", self._channel.close())

    async def _read(self) -> None:
        """Take frames until the stream ends, or one breaks the rules: a sandbox's side isn't trusted."""
        try:
            while self._take_frames() and (content := await self._channel.receive()):
                self._received += content
        except SandboxUnavailable:
            pass
        await self.close()

    def _take_frames(self) -> bool:
        at, received = 0, self._received
        while len(received) - at >= _HEAD.size:
            length, number, status = _HEAD.unpack_from(received, at)
            if not 9 <= length <= MOST_DATA + 9:
                return False
            end = at + 4 + length
            if len(received) < end:
                break
            self._settle(number, status, bytes(received[at + _HEAD.size : end]))
            at = end
        del received[:at]
        return True

    def _settle(self, number: int, status: int, content: bytes) -> None:
        answer = self._pending.pop(number, None)
        if answer is None or answer.done():  # nobody waits for it any more
            return
        if status:
            answer.set_exception(OSError(status, os.strerror(status)))
        else:
            answer.set_result(content)
