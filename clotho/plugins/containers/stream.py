"""A stream to a program that an engine runs in a container, over a connection of its own to the engine."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from clotho.errors import SandboxUnavailable

CONNECT_SECONDS = 30.0
ALIVE_SECONDS = 30
"""After three intervals without an answer of the far side, ssh ends: a stream may be silent for hours."""
MOST_FRAME = 64 << 20
STANDARD_OUTPUT = 1
HEADER_BYTES = 8


class EngineChannel:
    """A Channel to a program that was made with `exec`, without a terminal."""

    def __init__(self, connection: "Connection", program: str) -> None:
        self._reader = connection.reader
        self._writer = connection.writer
        self._ssh = connection.ssh
        self._program = program

    @classmethod
    async def open(cls, address: str, program: str) -> "EngineChannel":
        """Start the program called `program` by the engine at `address`."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await _connect(urlsplit(address))
        except (OSError, TimeoutError) as error:
            raise SandboxUnavailable(f"the container engine at {address}: {error!r}") from error
        channel = cls(connection, program)
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
        if self._ssh is not None:
            # it would wait for a far side that is cut off, long after this worker has connected anew
            with suppress(ProcessLookupError):
                self._ssh.kill()
            await self._ssh.wait()


@dataclass(frozen=True)
class Connection:
    """Bytes to and from an engine; `ssh` is the program that carries them, if one does."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ssh: asyncio.subprocess.Process | None = None


@asynccontextmanager
async def _failing() -> AsyncIterator[None]:
    try:
        yield
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise SandboxUnavailable(f"the stream from a container engine: {error!r}") from error


async def _connect(address: SplitResult) -> Connection:
    if address.scheme == "unix":
        return Connection(*await asyncio.open_unix_connection(address.path))
    if address.scheme == "ssh":
        return await _through_ssh(address)
    reader, writer = await asyncio.open_connection(address.hostname, address.port or 2375)
    peer = writer.get_extra_info("socket")
    # only keepalives tell of a silent stream that the other side is gone
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(reader, writer)


async def _through_ssh(address: SplitResult) -> Connection:
    """Connect through ssh as Docker's own client does: the far side's `docker` passes it on to its engine."""
    port = () if address.port is None else ("-p", str(address.port))
    host = f"{address.username}@{address.hostname}" if address.username else str(address.hostname)
    process = await asyncio.create_subprocess_exec(
        # BatchMode: nobody is there to type a password. `--`: a name may begin with a dash
        *("ssh", "-o", "BatchMode=yes", "-o", f"ServerAliveInterval={ALIVE_SECONDS}", *port, "--"),
        *(host, "docker", "system", "dial-stdio"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    return Connection(process.stdout, process.stdin, process)
