"""The pages' way to the network: a proxy that checks every request, and connects to the address that it checked."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from clotho.plugins.browser.launch import socket_path
from clotho.plugins.browser.process.policy import NetworkPolicy, Refused

MOST_RESPONSE_BYTES = 16 << 20
"""Bytes that a connection may bring: a page of more is cut."""
MOST_HEAD_BYTES = 64 << 10
MOST_BODY_BYTES = 8 << 20
CONNECT_SECONDS = 20.0
CHUNK = 1 << 16
MOST_REFUSALS = 100
DROPPED = ("connection", "keep-alive", "proxy-authorization", "proxy-connection")

Site = Callable[[str, bytes], Awaitable[bytes]]
"""Answers a raw request to a host that the sandbox serves."""


class FilteringProxy:
    """A proxy on a socket for one browser context."""

    def __init__(self, path: Path, policy: NetworkPolicy, sites: Mapping[str, Site]) -> None:
        self._path = path
        self._policy = policy
        self._sites = sites
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.refusals: dict[str, str] = {}
        """Host -> why requests to it were refused, since this was last emptied."""

    async def start(self) -> None:
        """Listen, in place of an earlier start."""
        await self.stop()
        with socket_path(self._path) as path:
            self._server = await asyncio.start_unix_server(self._accept, path, limit=MOST_HEAD_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        # a closed server's connections stay open: pages of the context before would go on with them
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._request(reader, writer)
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, *_ = [*head.partition("\r\n")[0].split(" "), "", ""]
        host = ""
        try:
            # both raise ValueError for what is no URL
            url = urlsplit(f"//{target}" if method == "CONNECT" else target)
            host, port = (url.hostname or "").lower(), url.port or 80
            if host in self._sites:
                await self._from_sandbox(host, method, url.scheme, _origin_form(head), reader, writer)
            elif method == "CONNECT":
                await self._tunnel(host, port, reader, writer)
            elif url.scheme == "http":
                await self._forward(host, port, _origin_form(head), reader, writer)
            else:
                raise Refused(f"{url.scheme or 'no'} scheme: only http and https pages are served")
        except (Refused, ValueError) as refused:
            # pages choose the hosts, and could fill this process's memory with them
            if len(self.refusals) < MOST_REFUSALS:
                self.refusals[host] = str(refused)
            await _answer(writer, "403 Forbidden", f"Refused: {refused}")
        except (OSError, TimeoutError) as error:
            await _answer(writer, "502 Bad Gateway", f"{host} can't be reached: {type(error).__name__}")

    async def _tunnel(
        self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, out = await self._connect(host, port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _both_ways(reader, writer, there, out)

    async def _forward(
        self, host: str, port: int, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, out = await self._connect(host, port)
        out.write(head)
        await _both_ways(reader, writer, there, out)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address that was checked: a second look-up of the name may answer with a private one."""
        failure: Exception = OSError(f"{host} has no address")
        async with asyncio.timeout(CONNECT_SECONDS):
            for address in await self._policy.addresses(host, port):
                try:
                    return await asyncio.open_connection(address, port)
                except OSError as error:
                    failure = error
        raise failure

    async def _from_sandbox(
        self,
        host: str,
        method: str,
        scheme: str,
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if method == "CONNECT" or scheme != "http":
            # sites are commands that answer plain requests: they have no certificate, and a tunnel shows no request
            raise Refused(f"{host} is served over http alone")
        length = re.search(rb"(?im)^content-length:\s*(\d+)\s*$", head)
        size = int(length[1]) if length else 0
        if size > MOST_BODY_BYTES:
            raise Refused(f"a request of {size:,} bytes")
        writer.write(await self._sites[host](host, head + await reader.readexactly(size)))
        await writer.drain()


def _origin_form(head: str) -> bytes:
    """Turn a proxy's request into a server's, for one answer on the connection."""
    line, *headers = head.removesuffix("\r\n\r\n").split("\r\n")
    method, target, *_ = [*line.split(" "), "", ""]
    found = urlsplit(target)
    path = (found.path or "/") + (f"?{found.query}" if found.query else "")
    kept = [each for each in headers if each.partition(":")[0].strip().lower() not in DROPPED]
    # close: a browser reuses its connection to a proxy for other hosts, which would be asked here unchecked
    return "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1")


async def _both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there: asyncio.StreamReader,
    out: asyncio.StreamWriter,
) -> None:
    sending = asyncio.ensure_future(_pump(reader, out, MOST_RESPONSE_BYTES))
    try:
        # the server's end is the end of both: a browser keeps its own side open
        await _pump(there, writer, MOST_RESPONSE_BYTES)
    finally:
        sending.cancel()
        out.close()
        await asyncio.gather(sending, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, left: int) -> None:
    with suppress(ConnectionError):
        while left > 0 and (chunk := await source.read(min(CHUNK, left))):
            target.write(chunk)
            await target.drain()
            left -= len(chunk)


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = text.encode(errors="replace")
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nX-Clotho: refused\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with suppress(ConnectionError):
        writer.write(head.encode() + body)
        await writer.drain()
