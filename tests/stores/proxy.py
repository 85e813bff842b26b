"""A TCP proxy in front of an S3 server that loses, delays, damages or answers requests as it is told."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

Forward = Callable[[bytes], Awaitable[bytes]]
Disturbance = Callable[[bytes, Forward], Awaitable[bytes]]
"""Given a request and the way to the server, returns what the client gets; nothing: the connection is dropped."""


async def request_lost(request: bytes, forward: Forward) -> bytes:
    return b""


async def answer_lost(request: bytes, forward: Forward) -> bytes:
    await forward(request)
    return b""


async def answer_broken_off(request: bytes, forward: Forward) -> bytes:
    return (await forward(request))[:-1]


async def answer_damaged(request: bytes, forward: Forward) -> bytes:
    answer = await forward(request)
    return answer[:-1] + bytes([answer[-1] ^ 1])


async def answer_never(request: bytes, forward: Forward) -> bytes:
    """The server does the work, and the client waits in vain."""
    await forward(request)
    await asyncio.Event().wait()
    return b""


async def not_http(request: bytes, forward: Forward) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html>Sign in"


def refused(status: int, code: str) -> Disturbance:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>told to</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {code}\r\nContent-Length: {len(body)}\r\nContent-Type: application/xml\r\n"

    async def answer(request: bytes, forward: Forward) -> bytes:
        return head.encode() + b"Connection: close\r\n\r\n" + body

    return answer


class DisturbedConnection:
    """One request a connection; `requests` are the heads of those that arrived."""

    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self._upstream = (address.hostname, address.port)
        self._port = 0
        self._disturbances: list[tuple[str, Disturbance]] = []
        self._stopped = asyncio.Event()
        self._reserved = socket.socket()
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def disturb(self, method: str, disturbance: Disturbance, times: int = 1) -> None:
        """Do this to the next so many requests of `method`, after those that are to be disturbed already."""
        self._disturbances += [(method, disturbance)] * times

    def count(self, method: str) -> int:
        return sum(head.startswith(f"{method} ") for head in self.requests)

    async def start(self) -> None:
        """Listen; again at the same port after `stop`."""
        self._stopped.clear()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self._reserved.close()

    async def stop(self) -> None:
        self._server.close()
        self._reserved = _held(self._port)
        self._stopped.set()
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        self._reserved.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        stopping = asyncio.create_task(self._stopped.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)  # a client that went away is no failure here
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        lengths = [line.split(":")[1] for line in lines if line.lower().startswith("content-length:")]
        body = await reader.readexactly(int(lengths[0]) if lengths else 0)
        self.requests.append(head.decode("latin-1"))
        disturbance = self._next(lines[0].split(" ")[0])
        # One request a connection: the server is told so, and tells the client.
        request = head[:-2] + b"Connection: close\r\n\r\n" + body
        answer = await (disturbance(request, self._forward) if disturbance else self._forward(request))
        writer.write(answer)
        await writer.drain()

    def _next(self, method: str) -> Disturbance | None:
        for number, (wanted, disturbance) in enumerate(self._disturbances):
            if wanted == method:
                del self._disturbances[number]
                return disturbance
        return None

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


def _held(port: int) -> socket.socket:
    """A socket at `port` that doesn't listen: connections are refused, and nobody else gets the port."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    return held
