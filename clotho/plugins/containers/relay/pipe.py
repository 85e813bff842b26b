"""A FIFO behind a relay, read and written ahead: an archive isn't slowed down by the way to it."""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any

from clotho.errors import SandboxUnavailable
from clotho.plugins.containers.relay import fields
from clotho.plugins.containers.relay.loop import submit
from clotho.plugins.containers.relay.stream import RelayStream

PIECE_BYTES = 1 << 18
AHEAD = 8
"""Pieces that are on their way at once."""
FLUSH_SECONDS = 600.0


class RelayPipe:
    def __init__(self, stream: RelayStream, number: int, writing: bool) -> None:
        self._stream = stream
        self._number = fields.number(number)
        self._writing = writing
        self._pending: deque[Future[bytes]] = deque()
        if not writing:
            for _ in range(AHEAD):
                self._ask("D", fields.size(PIECE_BYTES))

    def _ask(self, verb: str, content: bytes) -> None:
        # without a time: it is answered when the supervisor has taken or given the piece
        asked: Coroutine[Any, Any, bytes] = self._stream.ask(verb, self._number + content, seconds=None)
        self._pending.append(submit(asked))

    def ready(self, milliseconds: int) -> bool:
        if self._writing and len(self._pending) < AHEAD:
            return True
        wait([self._pending[0]], milliseconds / 1000)
        return self._pending[0].done()

    def read(self, limit: int) -> bytes:
        content = self._pending.popleft().result()
        self._ask("D", fields.size(PIECE_BYTES))
        return content

    def write(self, content: memoryview) -> int:
        while self._pending and self._pending[0].done():
            self._pending.popleft().result()
        if len(self._pending) >= AHEAD:
            return 0
        self._ask("U", bytes(content[:PIECE_BYTES]))
        return min(len(content), PIECE_BYTES)

    def flush(self) -> None:
        """Wait for what is on its way to a reader: one that has gone has said why."""
        deadline = time.monotonic() + FLUSH_SECONDS
        while self._writing and self._pending:
            try:
                self._pending.popleft().result(max(0.0, deadline - time.monotonic()))
            except TimeoutError as error:
                raise SandboxUnavailable("a sandbox's supervisor doesn't take an archive") from error
            except (BrokenPipeError, asyncio.CancelledError):
                return
