"""HTTP over a connection of the port: one request, and one answer after which the connection is closed."""

from dataclasses import dataclass, field

import h11

from clotho.plugins.harness.port import Connection, Port

CLOSES = ("connection", "close")
MOST_PARTS = 20_000
"""Pieces in which a body may come: each takes h11 about ten microseconds, however few bytes it has."""


@dataclass(frozen=True)
class HttpRequest:
    method: str
    path: str
    """Without its query."""
    headers: dict[str, str]
    """By names in small letters."""
    body: bytes


class Unserved(Exception):
    """What came is no request that can be served."""


@dataclass
class Exchange:
    """One connection as HTTP sees it."""

    port: Port
    connection: Connection
    _http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.SERVER))
    _head: h11.Request | None = None
    _body: bytearray = field(default_factory=bytearray)
    _parts: int = 0
    _over: bool = False
    """No more is read: the request is whole, or none."""
    begun: bool = False
    """Whether the answer's head was sent."""

    def read(self) -> HttpRequest | None:
        """The request, once all of it has come; what comes after it is dropped. Raises Unserved, once."""
        # taken out: h11 keeps what isn't read yet, and a large body isn't held twice
        received, self.connection.received = self.connection.received, bytearray()
        if self._over:
            return None
        try:
            self._http.receive_data(bytes(received))
            while True:
                match self._http.next_event():
                    case h11.Request() as head:
                        self._head = head
                    case h11.Data(data=data):
                        self._add(data)
                    case h11.EndOfMessage():
                        self._over = True
                        return self._whole()
                    case _:
                        return None
        except h11.RemoteProtocolError as error:
            self._over = True
            raise Unserved(str(error)) from error

    def _add(self, data: bytes) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            self._over = True
            raise Unserved("the body comes in too many pieces")
        self._body += data

    def _whole(self) -> HttpRequest:
        assert self._head is not None
        headers = {name.decode(): value.decode("latin-1") for name, value in self._head.headers}
        path = self._head.target.decode("latin-1").partition("?")[0]
        body, self._body = bytes(self._body), bytearray()
        return HttpRequest(self._head.method.decode(), path, headers, body)

    @property
    def waits_for_leave(self) -> bool:
        """Whether the client sends its body only when it is told to."""
        return not self._over and self._http.they_are_waiting_for_100_continue

    async def give_leave(self) -> None:
        if self.waits_for_leave:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))

    async def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        """Send a whole answer, and close."""
        length = str(len(body))
        head = h11.Response(
            status_code=status, headers=[("content-type", kind), ("content-length", length), CLOSES]
        )
        events = [head, *([h11.Data(data=body)] if body and self._not_head() else []), h11.EndOfMessage()]
        await self._send(*events, last=True)

    def _not_head(self) -> bool:
        # a client reads no body after HEAD, with which Claude Code begins
        return self._head is None or self._head.method != b"HEAD"

    async def begin_stream(self, first: bytes) -> None:
        self.begun = True
        head = h11.Response(
            status_code=200,
            headers=[("content-type", "text/event-stream"), ("cache-control", "no-cache"), CLOSES],
        )
        await self._send(head, *([h11.Data(data=first)] if first else []))

    async def stream(self, content: bytes) -> None:
        await self._send(h11.Data(data=content))

    async def end_stream(self, content: bytes) -> None:
        await self._send(h11.Data(data=content), h11.EndOfMessage(), last=True)

    async def _send(self, *events: h11.Event, last: bool = False) -> None:
        content = b"".join(self._http.send(event) or b"" for event in events)
        await self.port.send(self.connection, content, last)
