"""Machines at E2B: sandboxes of the account, found by their metadata.

They have no names. Where several of a name were made at once, the oldest one is the machine. Each worker that made
one ends the others that it sees afterwards: it can't tell whether their workers saw its own. An image is built into
a template, named by what it is built from, once for all workers.
"""

import asyncio
import hashlib
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import e2b
import httpx
from connectrpc.errors import ConnectError
from e2b.sandbox_async.commands.command_handle import AsyncCommandHandle

from clotho.config import secret
from clotho.errors import (
    ClothoError,
    InvalidInput,
    IsolationUnavailable,
    SandboxLost,
    SandboxUnavailable,
    truncate_middle,
)
from clotho.plugins.clouds.accounts import E2bAccount
from clotho.plugins.clouds.config import E2bConfig
from clotho.plugins.clouds.files import staged
from clotho.plugins.clouds.pace import Pace
from clotho.plugins.clouds.streams import Received
from clotho.plugins.clouds.terminal import become
from clotho.plugins.containers.relay.machine import Base, Channel, Found, Start
from clotho.sandbox.backend import SandboxSpec

NAME = "clotho-name"
PIECE_BYTES = 1 << 16
"""Bytes of one write to a program."""
CONNECT_SECONDS = 60
"""Attaching to a sandbox lets it live for so long at least."""
USER = "root"
REFUSED = (e2b.AuthenticationException, e2b.InvalidArgumentException, e2b.TemplateException)
OUTAGES = (e2b.RateLimitException, e2b.TimeoutException, e2b.NotEnoughSpaceException)
RETRIED_STATUSES = frozenset((408, 409, 425, 429))
STATUS = re.compile(r"\s*(\d{3}): ")


class E2bMachines:
    """Sandboxes of the account."""

    kind = "e2b"
    starts_first = False
    remove_ended = None
    extends = True

    def __init__(self, account: E2bAccount) -> None:
        self._account = account
        self._pace = Pace(account.creations_per_second)
        self._templates: dict[str, asyncio.Task[None]] = {}
        self._sandboxes: dict[str, e2b.AsyncSandbox] = {}

    @property
    def max_lifetime_seconds(self) -> float:
        return self._account.max_lifetime_seconds

    async def base(self, spec: SandboxSpec) -> Base:
        config = _config(spec)
        if config.template is not None:
            return Base(image=config.template, user=config.user or "")
        memory = spec.memory_mb + spec.memory_mb % 2
        built_from = repr((config.image, config.cpus, memory))
        name = f"clotho-{hashlib.sha256(built_from.encode()).hexdigest()[:24]}"
        building = self._templates.get(name)
        if building is None or (building.done() and (building.cancelled() or building.exception())):
            building = self._templates[name] = asyncio.create_task(self._build(name, config, memory))
        await asyncio.shield(building)
        return Base(image=name, user=config.user or "")

    async def _build(self, name: str, config: E2bConfig, memory_mb: int) -> None:
        assert config.image is not None
        with told(f"image {config.image}", InvalidInput):
            if not await e2b.AsyncTemplate.exists(name, **self._options()):
                template = e2b.AsyncTemplate().from_image(config.image)
                await e2b.AsyncTemplate.build(
                    template, name, cpu_count=config.cpus, memory_mb=memory_mb, **self._options()
                )

    async def create(
        self,
        name: str,
        base: Base,
        spec: SandboxSpec,
        labels: Mapping[str, str],
        lifetime_seconds: float,
        start: Start | None = None,
    ) -> None:
        config = _config(spec)
        if await self.find(name) is not None:
            return
        await self._pace.turn()
        with told(name, InvalidInput):
            await e2b.AsyncSandbox.create(
                base.image,
                timeout=self._seconds(lifetime_seconds),
                metadata={**labels, NAME: name},
                allow_internet_access=config.network != "none",
                **_filtered(config),
                **self._options(),
            )
            for younger in (await self._listed({NAME: name}))[1:]:
                await e2b.AsyncSandbox.kill(younger.sandbox_id, **self._options())

    async def extend(self, name: str, lifetime_seconds: float) -> None:
        """Extend the machine's life. Beyond the account's plan this is refused: then it ends when it would have."""
        sandbox = await self._sandbox(name)
        with suppress(InvalidInput), self._told_of(name):
            await sandbox.set_timeout(self._seconds(lifetime_seconds))

    async def find(self, name: str) -> Found | None:
        with told(name):
            listed = await self._listed({NAME: name})
        known = self._sandboxes.get(name)
        if known is not None and (not listed or known.sandbox_id != listed[0].sandbox_id):
            del self._sandboxes[name]
        return _found(listed[0]) if listed else None

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        sandbox = await self._sandbox(name)
        contents, move = staged(files)
        with self._told_of(name):
            for path, content in contents.items():
                await sandbox.files.write(path, content, user=USER, use_octet_stream=True)
            await sandbox.commands.run(shlex.join(move), user=USER)

    async def open(self, name: str, argv: Sequence[str]) -> Channel:
        sandbox = await self._sandbox(name)
        channel = E2bChannel(sandbox, name)
        with self._told_of(name):
            await channel.start(argv)
        return channel

    async def snapshot(self, name: str) -> Base | None:
        return None

    async def destroy(self, name: str) -> None:
        self._sandboxes.pop(name, None)
        with told(name):
            for each in await self._listed({NAME: name}):
                await e2b.AsyncSandbox.kill(each.sandbox_id, **self._options())

    async def list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        with told("list"):
            return [_found(each) for each in await self._listed(labels) if NAME in each.metadata]

    async def close(self) -> None:
        self._sandboxes.clear()

    def _options(self) -> dict[str, Any]:
        """Every call's: E2B's package would try some again by itself."""
        return {"api_key": secret(self._account.api_key_variable, "a key of E2B"), "retries": 0}

    def _seconds(self, lifetime: float) -> int:
        return math.ceil(min(lifetime, self.max_lifetime_seconds))

    async def _listed(self, metadata: Mapping[str, str]) -> Sequence[e2b.SandboxInfo]:
        """The running machines with this metadata, the oldest first."""
        query = e2b.SandboxQuery(metadata=dict(metadata), state=[e2b.SandboxState.RUNNING])
        pages = e2b.AsyncSandbox.list(query, **self._options())
        found: list[e2b.SandboxInfo] = []
        while pages.has_next:
            found += await pages.next_items()
        return sorted(found, key=lambda each: (each.started_at, each.sandbox_id))

    async def _sandbox(self, name: str) -> e2b.AsyncSandbox:
        if name not in self._sandboxes:
            with told(name):
                listed = await self._listed({NAME: name})
                if not listed:
                    raise SandboxLost(f"E2B has no sandbox {name}")
                self._sandboxes[name] = await e2b.AsyncSandbox.connect(
                    listed[0].sandbox_id, timeout=CONNECT_SECONDS, **self._options()
                )
        return self._sandboxes[name]

    @contextmanager
    def _told_of(self, name: str) -> Iterator[None]:
        try:
            with told(name):
                yield
        except SandboxLost:
            self._sandboxes.pop(name, None)
            raise


class E2bChannel:
    """A program in a terminal: what commands print comes as text, which bears no bytes."""

    def __init__(self, sandbox: e2b.AsyncSandbox, name: str) -> None:
        self._sandbox = sandbox
        self._name = name
        self._received = Received()
        self._terminal: AsyncCommandHandle[str] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self, argv: Sequence[str]) -> None:
        size = e2b.PtySize(rows=24, cols=80)
        self._terminal = await self._sandbox.pty.create(size, self._received.put, user=USER, timeout=0)
        self._ending = asyncio.create_task(self._end(self._terminal))
        try:
            await become(argv, self._write, self._received)
        except BaseException:
            await self.close()
            raise

    async def _end(self, terminal: "AsyncCommandHandle[str]") -> None:
        """A stream that breaks has ended."""
        try:
            with suppress(e2b.CommandExitException, ClothoError), told(self._name):
                await terminal.wait()
        finally:
            await self._received.end()

    async def _write(self, content: bytes) -> None:
        assert self._terminal is not None
        await self._sandbox.pty.send_stdin(self._terminal.pid, content)

    async def send(self, content: bytes) -> None:
        with told(self._name, SandboxUnavailable):
            for at in range(0, len(content), PIECE_BYTES):
                await self._write(content[at : at + PIECE_BYTES])

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
    """E2B's errors as Clotho's; what isn't found is `gone`."""
    try:
        yield
    except (e2b.NotFoundException, e2b.SandboxNotRunningException) as error:
        raise gone(_text(subject, error)) from error
    except REFUSED as error:
        raise InvalidInput(_text(subject, error)) from error
    except OUTAGES as error:
        raise SandboxUnavailable(_text(subject, error)) from error
    except (e2b.SandboxException, e2b.BuildException) as error:
        raise _by_status(error)(_text(subject, error)) from error
    except (e2b.ServiceBusyException, ConnectError, httpx.HTTPError, OSError) as error:
        raise SandboxUnavailable(_text(subject, error)) from error


def _by_status(error: Exception) -> type[ClothoError]:
    """The status is an outage's, or one of a request that won't be served; a failed build has none."""
    said = STATUS.match(str(error))
    status = getattr(error, "status_code", None) or (int(said[1]) if said else None)
    if status is None:
        return InvalidInput if isinstance(error, e2b.BuildException) else SandboxUnavailable
    return SandboxUnavailable if status >= 500 or status in RETRIED_STATUSES else InvalidInput


def _text(subject: str, error: Exception) -> str:
    return truncate_middle(f"E2B, {subject}: {error or type(error).__name__}")


def _config(spec: SandboxSpec) -> E2bConfig:
    """Raises IsolationUnavailable for bounds that E2B doesn't enforce."""
    if not isinstance(spec.backend, E2bConfig):
        raise InvalidInput(f"sandboxes of {spec.backend.name} aren't made at E2B")
    if spec.limits == "required":
        raise IsolationUnavailable("the disk of a sandbox at E2B can't be bounded (limits: required)")
    return spec.backend


def _filtered(config: E2bConfig) -> dict[str, Any]:
    """What is allowed goes before what is denied."""
    if isinstance(config.network, str):
        return {}
    return {"network": {"allow_out": list(config.network), "deny_out": [e2b.ALL_TRAFFIC]}}


def _found(listed: e2b.SandboxInfo) -> Found:
    return Found(listed.metadata[NAME], listed.metadata, running=True)
