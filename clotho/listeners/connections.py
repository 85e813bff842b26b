"""Connections of uvicorn with a time limit for headers, which tell when a client left in mid-answer."""

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 5.0
Client = tuple[str, int]
"""The address and port at the other end: they name a connection while it lasts."""


class Connection(H11Protocol):
    """Closed when a request's headers aren't there in time; uvicorn's own limit is for idle connections alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # the next request has begun in the same packet; idle connections are uvicorn's to end
        if self.conn.trailing_data[0]:
            self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()

    def _watch_headers(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watching()
        elif self._header_timer is None:
            # abort: close would first wait for a client that doesn't read its last answer
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def connections(on_torn: Callable[[Client], None], on_ended: Callable[[Client], None]) -> type[H11Protocol]:
    """The protocol class for a uvicorn.Config.

    `on_torn` is called for a client that left before it can have received all that was sent to it. `on_ended` is
    called for every connection when it has ended, after `on_torn`.
    """

    class Telling(Connection):
        def eof_received(self) -> None:
            if self.client and _unsent_bytes(self.transport):
                on_torn(self.client)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self.client:
                if exc is not None:
                    on_torn(self.client)
                on_ended(self.client)

    return Telling


def _unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes written that the other end's kernel hasn't acknowledged."""
    descriptor = transport.get_extra_info("socket").fileno()
    (unacknowledged,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))
    return int(unacknowledged) + transport.get_write_buffer_size()
