"""Machines at Daytona: sandboxes of the account, found by name and by labels.

Daytona keeps what it has built from an image. It destroys a sandbox whose time to live is over: every renewal
of its lease sets that anew.
"""

import asyncio
import math
import secrets
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

import aiohttp
import daytona
from daytona.handle.async_pty_handle import AsyncPtyHandle

from clotho.config import secret
from clotho.errors import (
    ClothoError,
    InvalidInput,
    IsolationUnavailable,
    SandboxLost,
    SandboxUnavailable,
    truncate_middle,
)
from clotho.plugins.clouds.accounts import DaytonaAccount
from clotho.plugins.clouds.config import DaytonaConfig
from clotho.plugins.clouds.files import staged
from clotho.plugins.clouds.pace import Pace
from clotho.plugins.clouds.streams import Received
from clotho.plugins.clouds.terminal import become
from clotho.plugins.containers.relay.machine import Base, Channel, Found, Start
from clotho.sandbox.backend import SandboxSpec

PIECE_BYTES = 1 << 16
"""Bytes of one write to a program."""
CREATE_SECONDS = 600
"""Seconds in which a sandbox is there, its image built."""
MOVE_SECONDS = 60
USER = "root"
GONE = (daytona.DaytonaNotFoundError, daytona.DaytonaGoneError)
RETRIED_STATUSES = frozenset((408, 409, 425, 429))


class DaytonaMachines:
    """Sandboxes of the account."""

    kind = "daytona"
    starts_first = False
    remove_ended = None
    extends = True
    max_lifetime_seconds = None

    def __init__(self, account: DaytonaAccount) -> None:
        self._account = account
        self._pace = Pace(account.creations_per_second)
        self._client: daytona.AsyncDaytona | None = None
        self._sandboxes: dict[str, daytona.AsyncSandbox] = {}

    async def base(self, spec: SandboxSpec) -> Base:
        """Daytona builds what an image needs when the first sandbox of it is made."""
        config = _config(spec)
        return Base(image=config.image, user=config.user or "")

    async def create(
        self,
        name: str,
        base: Base,
        spec: SandboxSpec,
        labels: Mapping[str, str],
        lifetime_seconds: float,
        start: Start | None = None,
    ) -> None:
        """One that has stopped is no use: its processes have ended."""
        config = _config(spec)
        found = await self.find(name)
        if found is not None and found.running:
            return
        if found is not None:
            await self.destroy(name)
        await self._pace.turn()
        asked = daytona.CreateSandboxFromImageParams(
            name=name,
            image=base.image,
            os_user=USER,
            labels=dict(labels),
            resources=daytona.Resources(
                cpu=config.cpus,
                memory=_gibibytes(spec.memory_mb),
                disk=_gibibytes(min(spec.disk_mb, self._account.max_disk_mb)),
            ),
            network_block_all=config.network == "none",
            domain_allow_list=",".join(config.domains) or None,
            network_allow_list=",".join(config.networks) or None,
            auto_stop_interval=0,
            auto_delete_interval=0,
            ttl_minutes=_minutes(lifetime_seconds),
        )
        with told(name, InvalidInput):
            try:
                self._sandboxes[name] = await self._opened().create(asked, timeout=CREATE_SECONDS)
            except daytona.DaytonaConflictError:  # another worker makes it
                with told(name, SandboxUnavailable):  # it may be destroyed meanwhile
                    made = await self._opened().get(name)
                    await made.wait_for_sandbox_start(CREATE_SECONDS)

    async def extend(self, name: str, lifetime_seconds: float) -> None:
        sandbox = await self._sandbox(name)
        async with self._told_of(name):
            await sandbox.set_ttl(_minutes(lifetime_seconds))

    async def find(self, name: str) -> Found | None:
        try:
            with told(name):
                sandbox = await self._opened().get(name)
        except SandboxLost:
            self._sandboxes.pop(name, None)
            return None
        self._sandboxes[name] = sandbox
        return _found(sandbox)

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        sandbox = await self._sandbox(name)
        contents, move = staged(files)
        async with self._told_of(name):
            await sandbox.fs.upload_files(
                [daytona.FileUpload(source=content, destination=path) for path, content in contents.items()]
            )
            moved = await sandbox.process.exec(shlex.join(move), timeout=MOVE_SECONDS)
        if moved.exit_code:
            raise SandboxUnavailable(f"files can't be put into {name}: {truncate_middle(moved.result)}")

    async def open(self, name: str, argv: Sequence[str]) -> Channel:
        sandbox = await self._sandbox(name)
        channel = DaytonaChannel(sandbox, name)
        async with self._told_of(name):
            await channel.start(argv)
        return channel

    async def snapshot(self, name: str) -> Base | None:
        return None

    async def destroy(self, name: str) -> None:
        if await self.find(name) is not None:
            with suppress(SandboxLost), told(name):
                await self._sandboxes.pop(name).delete(wait=True)

    async def list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        query = daytona.ListSandboxesQuery(labels=dict(labels))
        with told("list"):
            return [_found(each) async for each in self._opened().list(query)]

    async def close(self) -> None:
        self._sandboxes.clear()
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _opened(self) -> "daytona.AsyncDaytona":
        if self._client is None:
            key = secret(self._account.api_key_variable, "a key of Daytona")
            config = daytona.DaytonaConfig(api_key=key, target=self._account.target)
            self._client = daytona.AsyncDaytona(config)
        return self._client

    async def _sandbox(self, name: str) -> "daytona.AsyncSandbox":
        if name not in self._sandboxes:
            found = await self.find(name)
            if found is None or not found.running:
                raise SandboxLost(f"Daytona has no sandbox {name} that runs")
        return self._sandboxes[name]

    @asynccontextmanager
    async def _told_of(self, name: str) -> AsyncIterator[None]:
        """Of a sandbox that has stopped, requests are refused as if they were wrong."""
        try:
            with told(name):
                yield
        except SandboxLost:
            self._sandboxes.pop(name, None)
            raise
        except InvalidInput as refusal:
            found = await self.find(name)
            self._sandboxes.pop(name, None)
            if found is None or not found.running:
                raise SandboxLost(f"Daytona's sandbox {name} has stopped") from refusal
            raise


class DaytonaChannel:
    """A program in a terminal: what commands print comes as text, which bears no bytes."""

    def __init__(self, sandbox: "daytona.AsyncSandbox", name: str) -> None:
        self._sandbox = sandbox
        self._name = name
        self._received = Received()
        self._terminal: AsyncPtyHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self, argv: Sequence[str]) -> None:
        session = f"clotho-{secrets.token_hex(8)}"
        self._terminal = await self._sandbox.process.create_pty_session(session, self._received.put, cwd="/")
        self._ending = asyncio.create_task(self._end(self._terminal))
        try:
            await become(argv, self._terminal.send_input, self._received)
        except BaseException:
            await self.close()
            raise

    async def _end(self, terminal: AsyncPtyHandle) -> None:
        """A stream that breaks has ended."""
        try:
            with suppress(ClothoError), told(self._name):
                await terminal.wait()
        finally:
            await self._received.end()

    async def send(self, content: bytes) -> None:
        assert self._terminal is not None
        with told(self._name, SandboxUnavailable):
            for at in range(0, len(content), PIECE_BYTES):
                await self._terminal.send_input(content[at : at + PIECE_BYTES])

    async def receive(self) -> bytes:
        return await self._received.take()

    async def close(self) -> None:
        await self._received.end()
        if self._terminal is not None:
            with suppress(ClothoError), told(self._name):
                await self._terminal.kill()
            await self._terminal.disconnect()
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.wait([self._ending])


@contextmanager
def told(subject: str, gone: type[ClothoError] = SandboxLost) -> Iterator[None]:
    """Daytona's errors as Clotho's; what isn't found is `gone`."""
    try:
        yield
    except GONE as error:
        raise gone(_text(subject, error)) from error
    except daytona.DaytonaError as error:
        status = error.status_code
        refused = status is not None and 400 <= status < 500 and status not in RETRIED_STATUSES
        raise (InvalidInput if refused else SandboxUnavailable)(_text(subject, error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise SandboxUnavailable(_text(subject, error)) from error


def _text(subject: str, error: Exception) -> str:
    return truncate_middle(f"Daytona, {subject}: {error or type(error).__name__}")


def _config(spec: SandboxSpec) -> DaytonaConfig:
    """Raises IsolationUnavailable for bounds that Daytona isn't known to enforce."""
    if not isinstance(spec.backend, DaytonaConfig):
        raise InvalidInput(f"sandboxes of {spec.backend.name} aren't made at Daytona")
    if spec.limits == "required":
        raise IsolationUnavailable("the disk of a sandbox at Daytona isn't bounded (limits: required)")
    return spec.backend


def _found(sandbox: "daytona.AsyncSandbox") -> Found:
    return Found(sandbox.name, sandbox.labels, running=sandbox.state == daytona.SandboxState.STARTED)


def _minutes(seconds: float) -> int:
    return max(1, math.ceil(seconds / 60))


def _gibibytes(mebibytes: int) -> int:
    return max(1, math.ceil(mebibytes / 1024))
