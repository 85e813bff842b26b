"""Messages and files over a stream of bytes, in frames: many at once, each in pieces, none held up by a long one.

A frame is its kind, the number of the call that it belongs to, the length of its payload, and the payload.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, Protocol

from clotho.errors import InvalidInput, SandboxUnavailable

PROTOCOL = 1
"""Version of the frames and of the calls in them."""
MAGIC = b"clotho-sandbox-host "
"""A server's first line is this and its version; what a login shell prints before it is skipped."""
MAX_NOISE_LINES = 100
MAX_LINE_BYTES = 4 << 10
PIECE_BYTES = 256 << 10
MAX_WRITTEN_BYTES = 1 << 30
MAX_MESSAGE_BYTES = MAX_WRITTEN_BYTES + (64 << 20)
"""More than the longest output of a command, and than the largest file that is read whole, 1 GiB."""
MAX_FILE_BYTES = 2 << 30
"""More than the blob of the largest checkpoint."""
MAX_CALLS = 4096
"""Calls that may be under way on one stream."""
_FRAME = struct.Struct(">BQI")


class Kind(IntEnum):
    PIECE = 0
    """A piece of a message that goes on."""
    LAST = 1
    """The end of a message."""
    FILE = 2
    """A piece of the file that belongs to the message that follows."""
    CANCEL = 3


class Reader(Protocol):
    async def readexactly(self, n: int) -> bytes:
        """Raises IncompleteReadError at the end of the stream."""

    async def readline(self) -> bytes: ...


class Writer(Protocol):
    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Received:
    number: int
    """Number of the call that the message belongs to."""
    message: bytes | None
    """None for a call given up."""
    file_error: Exception | None = None
    """Why the message's file couldn't be written."""


class Link:
    """One side of the stream. `file_of` tells where the file of a call goes, None where none is expected.

    What comes for calls that aren't `expected` is dropped.
    """

    def __init__(
        self,
        reader: Reader,
        writer: Writer,
        file_of: Callable[[int], Path | None],
        expected: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._file_of = file_of
        self._expected = expected
        self._room = asyncio.Lock()
        self._messages: dict[int, bytearray] = {}
        self._files: dict[int, BinaryIO] = {}
        self._file_errors: dict[int, Exception] = {}

    # ---- out ----

    def greet(self) -> None:
        self._writer.write(MAGIC + b"%d\n" % PROTOCOL)

    async def send(self, number: int, message: bytes, file: Path | None = None) -> None:
        """Send a message, and `file` before it. Raises SandboxUnavailable for one that is too long."""
        if len(message) > MAX_MESSAGE_BYTES:
            raise SandboxUnavailable(f"a message of {len(message)} bytes is too long for a remote sandbox")
        if file is not None:
            await self._send_file(number, file)
        for start in range(0, max(len(message), 1), PIECE_BYTES):
            kind = Kind.LAST if start + PIECE_BYTES >= len(message) else Kind.PIECE
            await self._write(kind, number, message[start : start + PIECE_BYTES])

    async def _send_file(self, number: int, path: Path) -> None:
        file = await asyncio.to_thread(path.open, "rb")
        try:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                await self._write(Kind.FILE, number, piece)
        finally:
            file.close()

    async def _write(self, kind: Kind, number: int, payload: bytes) -> None:
        """Write a frame when its turn comes: callers take turns, so that long messages share the stream."""
        async with self._room:
            self._writer.write(_FRAME.pack(kind, number, len(payload)) + payload)
            await self._writer.drain()

    def cancel(self, number: int) -> None:
        # without waiting for a turn, which a cancelled call can't: the frame is written whole, between others
        self._writer.write(_FRAME.pack(Kind.CANCEL, number, 0))

    def close(self) -> None:
        self._writer.close()
        for number in list(self._files):
            self.forget(number)

    # ---- in ----

    def forget(self, number: int) -> None:
        """Drop what has come so far for a call."""
        self._messages.pop(number, None)
        self._close_file(number)
        self._file_errors.pop(number, None)

    async def greeted(self) -> None:
        """Wait for the other side's first line. Raises InvalidInput where it speaks another version."""
        for _ in range(MAX_NOISE_LINES):
            line = await self._reader.readline()
            if not line or len(line) > MAX_LINE_BYTES:
                break
            if line.startswith(MAGIC):
                if line != MAGIC + b"%d\n" % PROTOCOL:
                    said = line.removeprefix(MAGIC).decode(errors="replace").strip()
                    raise InvalidInput(
                        f"the sandbox host speaks version {said}, this worker {PROTOCOL}: install the same "
                        "version of clotho-rollouts on both"
                    )
                return
        raise SandboxUnavailable("the sandbox host's server doesn't answer")

    async def received(self) -> AsyncIterator[Received]:
        """Whole messages, and the numbers of calls that are given up.

        Ends with the stream. Raises SandboxUnavailable for what breaks the rules of frames.
        """
        while (header := await self._exactly(_FRAME.size)) is not None:
            kind, number, length = _FRAME.unpack(header)
            if kind not in list(Kind) or length > PIECE_BYTES:
                raise SandboxUnavailable("a damaged frame from a remote sandbox's host")
            payload = await self._exactly(length)
            if payload is None:
                return
            match kind:
                case _ if not self._expected(number):
                    continue
                case Kind.FILE:
                    await self._write_file(number, payload)
                case Kind.CANCEL:
                    self.forget(number)
                    yield Received(number, None)
                case _:
                    self._append(number, payload)
                    if kind == Kind.LAST:
                        self._close_file(number)
                        message = bytes(self._messages.pop(number))
                        yield Received(number, message, self._file_errors.pop(number, None))

    def _append(self, number: int, payload: bytes) -> None:
        message = self._messages.setdefault(number, bytearray())
        message += payload
        if len(message) > MAX_MESSAGE_BYTES or len(self._messages) > MAX_CALLS:
            raise SandboxUnavailable("more comes from a remote sandbox's host than it may send")

    async def _write_file(self, number: int, payload: bytes) -> None:
        # the rest of a file that can't be written: its message tells so
        if number in self._file_errors:
            return
        try:
            file = self._files.get(number)
            if file is None:
                path = self._file_of(number)
                if path is None:
                    return
                file = self._files[number] = await asyncio.to_thread(path.open, "wb")
            await asyncio.to_thread(file.write, payload)
            size = file.tell()
        except (
            OSError,
            ValueError,
        ) as error:  # ValueError: its call was given up meanwhile, and it is closed
            self._file_errors[number] = error
            size = 0
        if not self._expected(number):
            self.forget(number)
        if size > MAX_FILE_BYTES:
            raise SandboxUnavailable("a remote sandbox's archive is larger than any may be")

    def _close_file(self, number: int) -> None:
        if (file := self._files.pop(number, None)) is not None:
            try:
                file.close()
            except OSError as error:
                self._file_errors.setdefault(number, error)

    async def _exactly(self, size: int) -> bytes | None:
        try:
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
