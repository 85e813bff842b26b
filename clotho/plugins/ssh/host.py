"""One host of the pool: its connection, its server, and what is known of its leases."""

import asyncio
import logging
import shlex
import time
from asyncio import CancelledError
from collections.abc import Awaitable
from typing import Any, TypeVar

import asyncssh

from clotho.errors import ClothoError, InvalidInput, SandboxLost, SandboxUnavailable
from clotho.plugins.ssh.address import SshHost
from clotho.plugins.ssh.remote.backend import RemoteBackend
from clotho.plugins.ssh.remote.connection import Connection, Stream
from clotho.sandbox.backend import LeaseRecord

T = TypeVar("T")

CONNECT_SECONDS = 15.0
KEEPALIVE_SECONDS = 10
KEEPALIVES = 3
"""Unanswered ones after which a connection is given up."""
RETRY_SECONDS = 2.0
"""Seconds after a failed connection in which no other is tried."""
PASSED_OVER_SECONDS = 20.0
"""Seconds after a failed connection in which no sandbox is made there: each may take CONNECT_SECONDS to fail."""
FRESH_SECONDS = 2.0
"""Seconds for which a host's leases are taken to be what they were."""
STDERR_BYTES = 2_000
NOT_INSTALLED = (126, 127)
"""A shell's exit codes for a command that it can't run."""

log = logging.getLogger("clotho")


class PoolHost:
    """One connection and one session, which all calls share."""

    def __init__(self, settings: SshHost, folder: str, lease_seconds: float) -> None:
        self.settings = settings
        self.backend = RemoteBackend(("ssh",), self._connect, place=f"{self.name}/")
        self._command = f"{settings.command} {shlex.quote(f'{settings.root}/{folder}')}"
        self._lease_seconds = lease_seconds
        self._held: set[str] = set()
        self._making: set[str] = set()
        self._asked_at: float | None = None
        self._failure: ClothoError | None = None
        self._failed_at = 0.0
        self._unreachable_since: float | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    # ---- what it holds ----

    def holds(self, lease: str) -> bool:
        return lease in self._held

    @property
    def free(self) -> int:
        return self.settings.capacity - len(self._held)

    def reserve(self, lease: str) -> None:
        """Keep a place for a lease, whatever the host lists, until it is `made` or forgotten."""
        self._held.add(lease)
        self._making.add(lease)

    def made(self, lease: str) -> None:
        self._making.discard(lease)

    def forget(self, lease: str) -> None:
        self._held.discard(lease)
        self._making.discard(lease)

    async def leases(self) -> list[LeaseRecord]:
        # leases that get a place while the host answers aren't in its answer
        settled = self._held - self._making
        found = list(await self.asked(self.backend.leases()))
        self._held = {record.lease for record in found} | (self._held - settled)
        self._asked_at = time.monotonic()
        return found

    async def look(self) -> None:
        """Ask for its leases, unless that was done, or failed, just now. Raises like `asked`."""
        self._raise_failure_of(PASSED_OVER_SECONDS)
        if self._asked_at is None or time.monotonic() - self._asked_at > FRESH_SECONDS:
            await self.leases()

    async def asked(self, answer: Awaitable[T]) -> T:
        """Raises SandboxLost where the host was out of reach for longer than a lease: its sandboxes have ended."""
        try:
            return await answer
        except SandboxUnavailable as error:
            if self.is_lost:
                raise SandboxLost(
                    f"host {self.name} was out of reach for longer than a lease: {error}"
                ) from error
            raise

    @property
    def is_lost(self) -> bool:
        since = self._unreachable_since
        return since is not None and time.monotonic() - since > self._lease_seconds

    # ---- its connection ----

    async def _connect(self) -> Connection:
        self._raise_failure_of(RETRY_SECONDS)
        try:
            connection = await Connection(await self._opened()).open()
        except (SandboxUnavailable, InvalidInput) as error:
            self._failure, self._failed_at = error, time.monotonic()
            # of the first failure in a row: from then on no lease was renewed
            if self._unreachable_since is None:
                self._unreachable_since = self._failed_at
            log.warning("%s", error)
            raise
        self._failure, self._unreachable_since = None, None
        return connection

    def _raise_failure_of(self, seconds: float) -> None:
        if self._failure is not None and time.monotonic() - self._failed_at < seconds:
            # a new error: one that is raised again and again collects tracebacks
            raise type(self._failure)(str(self._failure))

    async def _opened(self) -> Stream:
        connection = await self._connected()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                process: Any = await connection.create_process(self._command, encoding=None)
        except (asyncssh.Error, OSError, TimeoutError) as error:
            connection.close()
            raise SandboxUnavailable(f"host {self.name}: {_said(error)}") from error
        except CancelledError:
            connection.close()
            raise
        output = _Output(process)

        async def close() -> None:
            connection.close()
            await connection.wait_closed()
            await output.ended()

        async def why_ended() -> ClothoError:
            tail = await output.ended()
            connection.close()
            said = f"host {self.name}: {self.settings.command!r} ended ({process.exit_status}): {tail}"
            # no other attempt mends these
            if process.exit_status in NOT_INSTALLED or "No module named" in tail:
                return InvalidInput(f"{said}: install clotho-rollouts there, and set `command` of the host")
            return SandboxUnavailable(said if process.exit_status is not None else self._lost_connection)

        return Stream(_Reader(process.stdout), _Writer(process.stdin), why_ended, close)

    @property
    def _lost_connection(self) -> str:
        return f"host {self.name}: the connection was lost"

    async def _connected(self) -> asyncssh.SSHClientConnection:
        settings = self.settings
        known_hosts = settings.known_hosts.expanduser()
        if not await asyncio.to_thread(known_hosts.is_file):
            raise InvalidInput(f"host {self.name}: there is no file of known hosts at {known_hosts}")
        keys: dict[str, Any] = {}
        if settings.key is not None:
            # this key alone: none of an agent that happens to run
            keys = {"client_keys": [str(settings.key.expanduser())], "agent_path": None}
        if settings.user is not None:
            keys["username"] = settings.user
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncssh.connect(
                    settings.address,
                    settings.port,
                    # never None, with which any host would be trusted
                    known_hosts=str(known_hosts),
                    config=None,
                    # nobody is there to type a password
                    preferred_auth="publickey",
                    keepalive_interval=KEEPALIVE_SECONDS,
                    keepalive_count_max=KEEPALIVES,
                    **keys,
                )
        except asyncssh.HostKeyNotVerifiable as error:
            raise InvalidInput(
                f"host {self.name} shows a key that {known_hosts} doesn't have for {settings.address}: find out "
                "why it changed before you trust it"
            ) from error
        except (asyncssh.PermissionDenied, asyncssh.KeyImportError) as error:
            raise InvalidInput(
                f"host {self.name} lets {settings.user or 'this user'} in by no key"
            ) from error
        except (asyncssh.Error, OSError, TimeoutError) as error:
            raise SandboxUnavailable(f"host {self.name} can't be reached: {_said(error)}") from error


class _Output:
    """Reads what the server logs, so that it never waits for that to be read; keeps the end."""

    def __init__(self, process: Any) -> None:
        self._tail = b""
        self._process = process
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while piece := await self._process.stderr.read(STDERR_BYTES):
                self._tail = (self._tail + piece)[-STDERR_BYTES:]
            await self._process.wait_closed()
        except (asyncssh.Error, OSError) as error:
            log.debug("a sandbox host's log ended: %s", error)

    async def ended(self) -> str:
        await self._reading
        return self._tail.decode(errors="replace").strip()


class _Reader:
    """Raises ConnectionError where the connection is lost, as every stream does."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def readexactly(self, n: int) -> bytes:
        try:
            read: bytes = await self._stream.readexactly(n)
        except asyncssh.Error as error:
            raise ConnectionError(_said(error)) from error
        return read

    async def readline(self) -> bytes:
        try:
            read: bytes = await self._stream.readline()
        except asyncssh.Error as error:
            raise ConnectionError(_said(error)) from error
        return read


class _Writer:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    async def drain(self) -> None:
        try:
            await self._stream.drain()
        except asyncssh.Error as error:
            raise ConnectionError(_said(error)) from error

    def close(self) -> None:
        self._stream.close()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
