"""Machines at Modal: sandboxes of one app, found by name, and by tags.

Modal ends a sandbox after the time that it was made with; that can't be extended. So its first process ends it
where no supervisor runs in it.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import modal
from modal import exception as errors
from modal.container_process import ContainerProcess
from modal.stream_type import StreamType

from clotho.config import secret
from clotho.errors import (
    ClothoError,
    InvalidInput,
    IsolationUnavailable,
    SandboxLost,
    SandboxUnavailable,
    truncate_middle,
)
from clotho.plugins.clouds.accounts import ModalAccount
from clotho.plugins.clouds.config import ModalConfig
from clotho.plugins.clouds.files import staged
from clotho.plugins.clouds.pace import Pace
from clotho.plugins.clouds.streams import Received
from clotho.plugins.clouds.tags import labels_of, tags_of
from clotho.plugins.containers.relay.machine import Base, Channel, Found, Start
from clotho.sandbox.backend import SandboxSpec

PIECE_BYTES = 1 << 20
"""Bytes of one write to a program."""
NAME = "clotho.name"
CHECK_SECONDS = 10.0
CHECKS = 60
"""Checks in a row that find no supervisor, after which a sandbox ends: no worker has renewed its lease."""
UNTIL_UNSUPERVISED = """\
left=$2
while [ "$left" -gt 0 ]; do
  left=$((left - 1))
  for line in /proc/[0-9]*/cmdline; do
    case $(tr '\\0' ' ' < "$line") in /*/supervisor" begin "*) left=$2 ;; esac
  done 2> /dev/null
  sleep "$1"
done
"""
MOST_LABELS = 1_000
"""Sandboxes whose labels a worker remembers."""
GONE = (errors.NotFoundError, errors.SandboxTerminatedError, errors.SandboxTimeoutError)
REFUSED = (
    errors.AuthError,
    errors.PermissionDeniedError,
    errors.InvalidError,
    errors.ImageBuildError,
    errors.UnimplementedError,
    errors.VersionError,
)


class ModalMachines:
    """Sandboxes of the account's app."""

    kind = "modal"
    starts_first = extends = False
    remove_ended = None

    def __init__(self, account: ModalAccount) -> None:
        self._account = account
        self._pace = Pace(account.creations_per_second)
        self._opening = asyncio.Lock()
        self._app: modal.App | None = None
        self._client: modal.Client | None = None
        self._bases: dict[str, asyncio.Task[Base]] = {}
        self._sandboxes: dict[str, modal.Sandbox] = {}
        self._labels: dict[str, Mapping[str, str]] = {}

    @property
    def max_lifetime_seconds(self) -> float:
        return self._account.max_lifetime_seconds

    async def base(self, spec: SandboxSpec) -> Base:
        """Modal knows what it has built; a process asks once for each image."""
        config = _config(spec)
        if (building := self._bases.get(config.image)) is None or (building.done() and building.exception()):
            building = self._bases[config.image] = asyncio.create_task(self._built(config.image))
        image = await asyncio.shield(building)
        return image.model_copy(update={"user": config.user or ""})

    async def _built(self, name: str) -> Base:
        app, _ = await self._opened()
        with told(f"image {name}", InvalidInput):
            image = await modal.Image.from_registry(name).entrypoint([]).build.aio(app)
            return Base(image=image.object_id)

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
        app, client = await self._opened()
        listed = None if isinstance(config.network, str) else config.network
        await self._pace.turn()
        with told(name, InvalidInput), suppress(errors.AlreadyExistsError):
            self._sandboxes[name] = await modal.Sandbox.create.aio(
                *("sh", "-c", UNTIL_UNSUPERVISED, "sh", str(CHECK_SECONDS), str(CHECKS)),
                app=app,
                client=client,
                name=name,
                tags=tags_of({**labels, NAME: name}),
                image=modal.Image.from_id(base.image, client=client),
                timeout=math.ceil(min(lifetime_seconds, self.max_lifetime_seconds)),
                cpu=None if config.cpus is None else (config.cpus, config.cpus),
                memory=(spec.memory_mb, spec.memory_mb),
                region=config.region,
                block_network=config.network == "none",
                outbound_domain_allowlist=listed and config.domains,
                outbound_cidr_allowlist=listed and config.networks,
            )

    async def extend(self, name: str, lifetime_seconds: float) -> None:
        """Modal can't: it ends a sandbox after the time that it was made with."""

    async def find(self, name: str) -> Found | None:
        _, client = await self._opened()
        try:
            with told(name):
                sandbox = await modal.Sandbox.from_name.aio(self._account.app, name, client=client)
                self._sandboxes[name] = sandbox
                return Found(name, await self._labels_of(sandbox), running=True)
        except SandboxLost:
            self._sandboxes.pop(name, None)
            return None

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        sandbox = await self._sandbox(name)
        contents, move = staged(files)
        with self._told_of(name):
            for path, content in contents.items():
                await sandbox.filesystem.write_bytes.aio(content, path)
            moving = await sandbox.exec.aio(*move)
            if code := await moving.wait.aio():
                raise SandboxUnavailable(f"files can't be put into {name}: sh ended with {code}")

    async def open(self, name: str, argv: Sequence[str]) -> Channel:
        sandbox = await self._sandbox(name)
        with self._told_of(name):
            return ModalChannel(await sandbox.exec.aio(*argv, text=False, stderr=StreamType.DEVNULL), name)

    async def snapshot(self, name: str) -> Base | None:
        return None

    async def destroy(self, name: str) -> None:
        if await self.find(name) is not None:
            sandbox = self._sandboxes.pop(name)
            with told(name), suppress(errors.NotFoundError):
                await sandbox.terminate.aio()

    async def list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        """Modal lists those alone that run."""
        app, client = await self._opened()
        found = []
        with told("list", InvalidInput):
            listed = modal.Sandbox.list.aio(app_id=app.app_id, tags=tags_of(labels), client=client)
            sandboxes = [sandbox async for sandbox in listed]
        for sandbox in sandboxes:
            with suppress(SandboxLost), told(sandbox.object_id):
                theirs = await self._labels_of(sandbox)
                found.append(Found(theirs[NAME], theirs, running=True))
        return found

    async def close(self) -> None:
        self._sandboxes.clear()

    async def _opened(self) -> tuple[modal.App, modal.Client]:
        async with self._opening:
            if self._app is None or self._client is None:
                token = secret(self._account.token_id_variable, "the id of a token of Modal")
                key = secret(self._account.token_secret_variable, "the secret of a token of Modal")
                with told("account", InvalidInput):
                    self._client = await modal.Client.from_credentials.aio(token, key)
                    self._app = await modal.App.lookup.aio(
                        self._account.app, create_if_missing=True, client=self._client
                    )
            return self._app, self._client

    async def _sandbox(self, name: str) -> modal.Sandbox:
        if name not in self._sandboxes and await self.find(name) is None:
            raise SandboxLost(f"Modal has no sandbox {name}")
        return self._sandboxes[name]

    async def _labels_of(self, sandbox: modal.Sandbox) -> Mapping[str, str]:
        """They never change."""
        if sandbox.object_id not in self._labels:
            if len(self._labels) >= MOST_LABELS:
                self._labels.clear()
            self._labels[sandbox.object_id] = labels_of(await sandbox.get_tags.aio())
        return self._labels[sandbox.object_id]

    @contextmanager
    def _told_of(self, name: str) -> Iterator[None]:
        try:
            with told(name):
                yield
        except SandboxLost:
            self._sandboxes.pop(name, None)
            raise


class ModalChannel:
    """The streams of a process in a sandbox."""

    def __init__(self, process: "ContainerProcess[bytes]", name: str) -> None:
        self._process = process
        self._name = name
        self._received = Received()
        self._reading = asyncio.create_task(self._read(process.stdout))

    async def _read(self, output: AsyncIterator[bytes]) -> None:
        """A stream that breaks has ended."""
        try:
            with suppress(ClothoError), told(self._name):
                async for piece in output:
                    await self._received.put(piece)
        finally:
            await self._received.end()

    async def send(self, content: bytes) -> None:
        stdin = self._process.stdin
        with told(self._name, SandboxUnavailable):
            for at in range(0, len(content), PIECE_BYTES):
                stdin.write(content[at : at + PIECE_BYTES])
                await stdin.drain.aio()

    async def receive(self) -> bytes:
        return await self._received.take()

    async def close(self) -> None:
        await self._received.end()
        with suppress(ClothoError), told(self._name):
            self._process.stdin.write_eof()
            await self._process.stdin.drain.aio()
        self._reading.cancel()
        await asyncio.wait([self._reading])


@contextmanager
def told(subject: str, gone: type[ClothoError] = SandboxLost) -> Iterator[None]:
    """Modal's errors as Clotho's; what isn't found is `gone`."""
    try:
        yield
    except errors.ConflictError as error:
        raise SandboxUnavailable(_text(subject, error)) from error
    except GONE as error:
        raise gone(_text(subject, error)) from error
    except REFUSED as error:
        raise InvalidInput(_text(subject, error)) from error
    except errors.AlreadyExistsError:
        raise
    except (errors.Error, OSError, TimeoutError) as error:
        raise SandboxUnavailable(_text(subject, error)) from error


def _text(subject: str, error: Exception) -> str:
    return truncate_middle(f"Modal, {subject}: {error or type(error).__name__}")


def _config(spec: SandboxSpec) -> ModalConfig:
    """Raises IsolationUnavailable for bounds that Modal doesn't enforce."""
    if not isinstance(spec.backend, ModalConfig):
        raise InvalidInput(f"sandboxes of {spec.backend.name} aren't made at Modal")
    if spec.limits == "required":
        raise IsolationUnavailable("the disk of a sandbox at Modal can't be bounded (limits: required)")
    return spec.backend
