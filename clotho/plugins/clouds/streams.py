"""The output of a program in a cloud's machine, from a package that hands it over in its own time."""

import asyncio

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
