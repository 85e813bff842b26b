"""A port of the sandbox's loopback, which this process serves from outside of it.

The port is a job of the sandbox (`clotho/sandbox/supervisor/port.c`) and outlives this process. Its output is the
log of all that has come in: a process that takes over reads it from the beginning, and finds every connection that
still waits for its answer. Callbacks are called in the log's order, so that whatever follows from them alone is the
same in every process.
"""

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from clotho.errors import SandboxDisrupted, SandboxUnavailable, Unavailable
from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import Job, JobState, JobStatus, SandboxInstance
from clotho.sandbox.supervisor import supervisor_path
from clotho.tools import shell

HEAD = struct.Struct(">IcI")
NUMBER = struct.Struct(">I")
MOST_PIECE = 1 << 20
"""Bytes of an answer in one frame."""
READ_BYTES = 1 << 20
MOST_REQUEST_BYTES = 32 << 20
MOST_LOG_BYTES = 1 << 30
"""Bytes that a port may write before it is ended."""
MOST_CONNECTIONS = 64
MOST_FRAME = 1 << 16
"""Connections at a time and bytes of a frame, as in the port's program."""
FRAMES_AT_ONCE = 200
"""Frames after which other tasks go on: some are a byte long."""
LOOK_SECONDS = 10.0
BEGIN_SECONDS = 30.0


@dataclass
class Connection:
    """A connection to the port, as its log tells of it."""

    number: int
    received: bytearray = field(default_factory=bytearray)
    size: int = 0
    """Bytes that have come so far."""
    delivered: bool = False
    """The answer was handed over whole."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


Changed = Callable[[Connection], Awaitable[None]]
Serving = Callable[[], Awaitable[None]]


class Port:
    """The port of one sandbox; `scope` names it, and `server` is higher than those of earlier servers.

    `changed` is awaited whenever a connection has received something, was delivered, or has ended. `on_serving` is
    awaited once: when earlier servers have no effect any more, and all that they were told has been read.
    """

    def __init__(
        self,
        sandbox: SandboxInstance,
        scope: tuple[str | int, ...],
        number: int,
        server: int,
        changed: Changed,
        on_serving: Serving,
    ) -> None:
        self._sandbox = sandbox
        self._key = job_key(*scope, "port")
        self._program = job_key(*scope, "port", "program")
        self._number = number
        self._server = NUMBER.pack(server)
        self._changed = changed
        self._on_serving = on_serving
        self._connections: dict[int, Connection] = {}
        self._rest = b""
        self._offset = 0
        self._frames = 0
        self._sent = 0
        self._sending = asyncio.Lock()
        self.serving = asyncio.Event()
        """Set before `on_serving` is called."""

    async def begin(self) -> None:
        """Have the port open in the sandbox."""
        path = await self._placed()
        script = f"{shell.SYSTEM_PATH}\nchmod +x {path}\nexec {path} port {self._number} {MOST_REQUEST_BYTES}"
        job = Job(key=self._key, script=script, session="gateway", max_output=MOST_LOG_BYTES)
        await self._sandbox.start(job)
        await self._say(self._frame(0, b"T"))

    async def _placed(self) -> str:
        """The path of the program for the sandbox's processors, written there once."""
        looked = Job(
            key=job_key(self._key, "machine"), script=f"{shell.SYSTEM_PATH}\nuname -m", timeout=BEGIN_SECONDS
        )
        await self._sandbox.start(looked)
        status = await self._sandbox.wait(looked.key, BEGIN_SECONDS)
        machine = (await self._sandbox.output(looked.key)).decode(errors="replace").strip()
        if status.state is not JobState.EXITED or not machine:
            raise SandboxUnavailable(f"the sandbox doesn't tell its processors' kind: {status.state}")
        program = await asyncio.to_thread(supervisor_path(machine).read_bytes)
        return await self._sandbox.write_file(
            f"/tmp/.clotho-port-{self._program[:16]}", program, key=self._program
        )

    async def serve(self) -> JobStatus:
        """Follow the log until the port has ended; returns how.

        Raises SandboxLost where its sandbox is gone, and Unavailable where another server has taken over: what this
        one sends has no effect any more.
        """
        while True:
            # before the output is read: what came before an end is then read to the last byte
            status = await self._sandbox.wait_output(self._key, self._offset, LOOK_SECONDS)
            while self._offset < status.output_size:
                chunk = await self._sandbox.output(self._key, self._offset, READ_BYTES)
                if not chunk:
                    break
                self._offset += len(chunk)
                await self._read(chunk)
            if status.state is JobState.LOST:
                raise shell.lost("the harness' port was in a sandbox that is gone", status)
            if status.state not in shell.UNFINISHED:
                return status

    async def seconds_open(self) -> float:
        """Seconds since the port was opened, by whatever process."""
        sessions = await self._sandbox.sessions()
        began = next((each.started for each in sessions if each.key == self._key), None)
        return max(0.0, time.time() - began) if began is not None else 0.0

    async def end(self) -> None:
        """Take no further connections; the log stays."""
        await self._sandbox.kill(self._key)

    async def send(self, connection: Connection, content: bytes, last: bool = False) -> None:
        """Send `content`; after the `last`, the connection is closed when all of it has been handed over."""
        for at in range(0, len(content), MOST_PIECE):
            frame = self._frame(connection.number, b"D", content[at : at + MOST_PIECE])
            if last and at + MOST_PIECE >= len(content):
                frame += self._frame(connection.number, b"C")
            await self._say(frame)

    def _frame(self, number: int, kind: bytes, content: bytes = b"") -> bytes:
        return HEAD.pack(number, kind, NUMBER.size + len(content)) + self._server + content

    async def _say(self, frames: bytes) -> None:
        async with self._sending:
            self._sent += 1
            # a key for each input, which the sandbox takes once, however often it is asked; each server counts anew
            request = job_key(self._key, "in", NUMBER.unpack(self._server)[0], self._sent)
            await self._sandbox.send_input(self._key, frames, request)

    async def _read(self, chunk: bytes) -> None:
        self._rest += chunk
        at = 0
        while len(self._rest) - at >= HEAD.size:
            number, kind, size = HEAD.unpack_from(self._rest, at)
            if size > MOST_FRAME:
                raise damaged()
            if len(self._rest) - at < HEAD.size + size:
                break
            content = self._rest[at + HEAD.size : at + HEAD.size + size]
            at += HEAD.size + size
            await self._obey(number, kind, content)
            self._frames += 1
            if self._frames % FRAMES_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._rest = self._rest[at:]

    async def _obey(self, number: int, kind: bytes, content: bytes) -> None:
        # packed with the highest byte first: the bytes compare as their numbers do
        if kind == b"T" and content > self._server:
            raise Unavailable("another process has taken the harness' port over")
        if kind == b"T" and content == self._server and not self.serving.is_set():
            self.serving.set()
            await self._on_serving()
        connection = self._connections.get(number)
        match kind, connection:
            case b"O", None:
                if len(self._connections) == MOST_CONNECTIONS:
                    raise damaged()
                self._connections[number] = Connection(number)
            case b"D", Connection():
                connection.size += len(content)
                if connection.size > MOST_REQUEST_BYTES:
                    raise damaged()
                connection.received += content
                await self._changed(connection)
            case b"W", Connection():
                connection.delivered = True
                await self._changed(connection)
            case b"E", Connection():
                del self._connections[number]
                connection.ended.set()
                await self._changed(connection)


def damaged() -> SandboxDisrupted:
    """The error for a log that the port's program doesn't write: commands have."""
    return SandboxDisrupted("commands have written into the log of the harness' port")
