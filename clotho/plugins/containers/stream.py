"""A stream to a program that an engine runs in a container, over a connection of its own to the engine."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import SplitResult, urlsplit

from clotho.errors import SandboxUnavailable

CONNECT_SECONDS = 30.0
MOST_FRAME = 64 << 20
STANDARD_OUTPUT = 1
HEADER_BYTES = 8


class EngineChannel:
    """A Channel to a program that was made with `exec`, without a terminal."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, program: str) -> None:
        self._reader = reader
        self._writer = writer
        self._program = program

    @classmethod
    async def open(cls, address: str, program: str) -> "EngineChannel":
        """Start the program called `program` by the engine at `address`."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await _connect(urlsplit(address))
        except (OSError, TimeoutError) as error:
            raise SandboxUnavailable(f"the container engine at {address}: {error!r}") from error
        channel = cls(reader, writer, program)
        try:
            await channel._begin()
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _begin(self) -> None:
        body = json.dumps({"Detach": False, "Tty": False}).encode()
        head = (
            f"POST /exec/{self._program}/start HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
            f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with _failing():
            async with asyncio.timeout(CONNECT_SECONDS):
                self._writer.write(head.encode() + body)
                answer = await self._reader.readuntil(b"\r\n\r\n")
            status = answer.split(b" ", 2)[1:2]
            # an engine that doesn't switch protocols answers 200, and the stream follows all the same
            if status not in ([b"101"], [b"200"]):
                said = (await self._reader.read(2_000)).decode(errors="replace")
                raise SandboxUnavailable(f"the container engine runs nothing in a container: {said}")

    async def send(self, content: bytes) -> None:
        async with _failing():
            self._writer.write(content)
            await self._writer.drain()

    async def receive(self) -> bytes:
        """Frames of an engine: a byte for which stream, three that mean nothing, and the length."""
        while True:
            try:
                header = await self._reader.readexactly(HEADER_BYTES)
                length = int.from_bytes(header[4:], "big")
                if length > MOST_FRAME:
                    return b""
                content = await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, OSError):
                return b""
            if header[0] == STANDARD_OUTPUT and content:
                return content

    async def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def _failing() -> AsyncIterator[None]:
    try:
        yield
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise SandboxUnavailable(f"the stream from a container engine: {error!r}") from error


async def _connect(address: SplitResult) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.scheme == "unix":
        return await asyncio.open_unix_connection(address.path)
    if address.scheme == "ssh":
        return await _through_ssh(address)
    reader, writer = await asyncio.open_connection(address.hostname, address.port or 2375)
    peer = writer.get_extra_info("socket")
    # a stream may be silent for hours: only keepalives tell that the other side is gone
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return reader, writer


async def _through_ssh(address: SplitResult) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect through ssh as Docker's own client does: the far side's `docker` passes it on to its engine."""
    port = () if address.port is None else ("-p", str(address.port))
    host = f"{address.username}@{address.hostname}" if address.username else str(address.hostname)
    process = await asyncio.create_subprocess_exec(
        # BatchMode: nobody is there to type a password. `--`: a name may begin with a dash
        *("ssh", "-o", "BatchMode=yes", *port, "--", host, "docker", "system", "dial-stdio"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    return process.stdout, process.stdin
