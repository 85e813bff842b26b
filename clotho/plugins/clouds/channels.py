"""Streams to programs in a cloud's machine, whose package hands over their output in its own time.

Where a cloud has no stream that bears every byte, one goes through a terminal: a shell in it has the terminal pass
bytes on as they are, says so, and becomes the program.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from clotho.errors import ClothoError, SandboxUnavailable

Told = Callable[[], AbstractContextManager[None]]
"""Raises the errors of a cloud's package as Clotho's: SandboxUnavailable for a program that is gone."""
Write = Callable[[bytes], Awaitable[None]]

MARK = b"clotho-terminal-is-raw\n"
START_SECONDS = 60.0
PIECE_BYTES = 1 << 16
"""Bytes of one write to a terminal."""
WAITING_BYTES = 4 << 20
"""Bytes that are kept before the package is made to wait."""


class Received:
    """The bytes that have come and weren't taken yet."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._ended = False
        self._changed = asyncio.Condition()

    async def put(self, piece: bytes) -> None:
        """Wait for room. Nothing is kept once the stream has ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended or len(self._content) < WAITING_BYTES)
            if not self._ended:
                self._content += piece
                self._changed.notify_all()

    async def end(self) -> None:
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def take(self) -> bytes:
        """All that has come, at least a byte; b"" at the end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended or bool(self._content))
            content = bytes(self._content)
            self._content.clear()
            self._changed.notify_all()
            return content

    async def take_past(self, mark: bytes) -> bool:
        """Drop what comes before the end of `mark`; False where the stream ends without it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended or mark in self._content)
            at = self._content.find(mark)
            if at < 0:
                return False
            del self._content[: at + len(mark)]
            return True


class CloudChannel:
    """A `Channel` to a program.

    `read` puts the program's output into `received` and returns at its end, `write` takes up to `piece_bytes`, and
    `end` ends the program's input.
    """

    def __init__(
        self,
        told: Told,
        received: Received,
        *,
        read: Callable[[], Awaitable[object]],
        write: Write,
        end: Callable[[], Awaitable[None]],
        piece_bytes: int,
    ) -> None:
        self._told = told
        self._received = received
        self._write = write
        self._end = end
        self._piece_bytes = piece_bytes
        self._reading = asyncio.create_task(self._read(read))

    async def _read(self, read: Callable[[], Awaitable[object]]) -> None:
        """Read until the stream ends or breaks."""
        try:
            with suppress(ClothoError), self._told():
                await read()
        finally:
            await self._received.end()

    async def send(self, content: bytes) -> None:
        with self._told():
            for at in range(0, len(content), self._piece_bytes):
                await self._write(content[at : at + self._piece_bytes])

    async def receive(self) -> bytes:
        return await self._received.take()

    async def close(self) -> None:
        await self._received.end()
        try:
            with suppress(ClothoError), self._told():
                await self._end()
        finally:
            # also where the end is given up: the program's output would else be read for ever
            self._reading.cancel()
            await asyncio.wait([self._reading])


class Terminal(Protocol):
    """A terminal in a machine, as the packages of clouds have it."""

    async def wait(self) -> object: ...

    async def kill(self) -> object: ...

    async def disconnect(self) -> None: ...


async def open_in_terminal(
    argv: Sequence[str], terminal: Terminal, write: Write, received: Received, told: Told
) -> CloudChannel:
    """Have the shell in a terminal, whose output goes to `received`, run `argv` in its place."""

    async def end() -> None:
        try:
            await terminal.kill()
        finally:
            await terminal.disconnect()

    channel = CloudChannel(told, received, read=terminal.wait, write=write, end=end, piece_bytes=PIECE_BYTES)
    try:
        # the terminal echoes the command, which must not hold the mark
        first, _, rest = MARK.decode().strip().partition("-")
        # without standard error, which a terminal would mix with the frames
        command = (
            f"stty raw -echo && printf '%s-%s\\n' {first} {rest} && exec {shlex.join(argv)} 2>/dev/null\n"
        )
        await write(command.encode())
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                if await received.take_past(MARK):
                    return channel
        raise SandboxUnavailable(
            "a terminal in the sandbox doesn't answer: its image needs a shell, and stty"
        )
    except BaseException:
        await channel.close()
        raise
