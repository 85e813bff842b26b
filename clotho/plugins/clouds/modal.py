"""Machines at Modal: sandboxes of one app, found by name, and by tags.

Modal ends a sandbox after the time that it was made with; that can't be extended. So its first process ends it
where no supervisor runs in it.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import quote, unquote

import modal
from modal import exception as errors
from modal.stream_type import StreamType

from clotho.config import secret
from clotho.errors import ClothoError, InvalidInput, SandboxLost, SandboxUnavailable
from clotho.plugins.clouds.accounts import ModalAccount
from clotho.plugins.clouds.channels import CloudChannel, Received, Told
from clotho.plugins.clouds.config import ModalConfig
from clotho.plugins.clouds.machines import CloudMachines
from clotho.plugins.containers.relay.machine import Found
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
TAG_CHARACTERS = 60
"""Characters of a tag's value; Modal bears 63, of letters, digits, `-`, `.` and `_`."""


class ModalMachines(CloudMachines[ModalConfig, modal.Sandbox]):
    """Sandboxes of the account's app."""

    kind, cloud, config = "modal", "Modal", ModalConfig
    extends = False

    def __init__(self, account: ModalAccount) -> None:
        super().__init__(account.creations_per_second)
        self._account = account
        self.max_lifetime_seconds = account.max_lifetime_seconds
        self._opening = asyncio.Lock()
        self._app: modal.App | None = None
        self._client: modal.Client | None = None
        self._labels: dict[str, Mapping[str, str]] = {}

    def clotho_error(self, error: Exception) -> type[ClothoError] | None:
        match error:
            case errors.ConflictError():
                return SandboxUnavailable
            case errors.NotFoundError() | errors.SandboxTerminatedError() | errors.SandboxTimeoutError():
                return SandboxLost
            case (
                errors.AuthError()
                | errors.PermissionDeniedError()
                | errors.InvalidError()
                | errors.ImageBuildError()
                | errors.UnimplementedError()
                | errors.VersionError()
            ):
                return InvalidInput
            case errors.Error() | OSError() | TimeoutError():
                return SandboxUnavailable
        return None

    async def _image(self, config: ModalConfig, spec: SandboxSpec) -> str:
        """Modal knows what it has built; a process asks once for each image."""
        return await self._built(config.image, partial(self._build, config.image))

    async def _build(self, name: str) -> str:
        app, _ = await self._opened()
        with self.told(f"image {name}", InvalidInput):
            # an image's own entrypoint would take a sandbox's command for its arguments
            image = await modal.Image.from_registry(name).entrypoint([]).build.aio(app)
            return str(image.object_id)

    async def _create(
        self,
        name: str,
        image: str,
        spec: SandboxSpec,
        config: ModalConfig,
        labels: Mapping[str, str],
        lifetime_seconds: float,
    ) -> None:
        app, client = await self._opened()
        listed = None if isinstance(config.network, str) else config.network
        # a name is taken once in an app: another worker was faster, and has made the same
        with suppress(errors.AlreadyExistsError):
            self._sandboxes[name] = await modal.Sandbox.create.aio(
                *("sh", "-c", UNTIL_UNSUPERVISED, "sh", str(CHECK_SECONDS), str(CHECKS)),
                app=app,
                client=client,
                name=name,
                tags=tags_of({**labels, NAME: name}),
                image=modal.Image.from_id(image, client=client),
                timeout=math.ceil(min(lifetime_seconds, self._account.max_lifetime_seconds)),
                # pairs are what is reserved and the most: a single number would be no bound
                cpu=None if config.cpus is None else (config.cpus, config.cpus),
                memory=(spec.memory_mb, spec.memory_mb),
                region=config.region,
                block_network=config.network == "none",
                outbound_domain_allowlist=listed and config.domains,
                outbound_cidr_allowlist=listed and config.networks,
            )

    async def extend(self, name: str, lifetime_seconds: float) -> None:
        """Modal can't: it ends a sandbox after the time that it was made with."""

    async def _find(self, name: str) -> Found:
        _, client = await self._opened()
        sandbox = await modal.Sandbox.from_name.aio(self._account.app, name, client=client)
        self._sandboxes[name] = sandbox
        return Found(name, await self._labels_of(sandbox), running=True)

    async def _list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        """Modal lists those alone that run."""
        app, client = await self._opened()
        listed = modal.Sandbox.list.aio(app_id=app.app_id, tags=tags_of(labels), client=client)
        found = []
        for sandbox in [sandbox async for sandbox in listed]:
            with suppress(SandboxLost), self.told(sandbox.object_id):
                theirs = await self._labels_of(sandbox)
                found.append(Found(theirs[NAME], theirs, running=True))
        return found

    async def _put(self, sandbox: modal.Sandbox, files: Mapping[str, bytes], then: Sequence[str]) -> str:
        for path, content in files.items():
            await sandbox.filesystem.write_bytes.aio(content, path)
        moving = await sandbox.exec.aio(*then)
        code = await moving.wait.aio()
        return f"sh ended with {code}" if code else ""

    async def _open(self, sandbox: modal.Sandbox, argv: Sequence[str], told: Told) -> CloudChannel:
        process = await sandbox.exec.aio(*argv, text=False, stderr=StreamType.DEVNULL)
        received, stdin = Received(), process.stdin

        async def read() -> None:
            async for piece in process.stdout:
                await received.put(piece)

        async def write(piece: bytes) -> None:
            stdin.write(piece)
            await stdin.drain.aio()

        async def end() -> None:
            stdin.write_eof()
            await stdin.drain.aio()

        return CloudChannel(told, received, read=read, write=write, end=end, piece_bytes=PIECE_BYTES)

    async def _destroy(self, name: str) -> None:
        if await self.find(name) is not None:
            await self._sandboxes.pop(name).terminate.aio()

    async def _opened(self) -> tuple[modal.App, modal.Client]:
        async with self._opening:
            if self._app is None or self._client is None:
                token = secret(self._account.token_id_variable, "the id of a token of Modal")
                key = secret(self._account.token_secret_variable, "the secret of a token of Modal")
                with self.told("account", InvalidInput):
                    self._client = await modal.Client.from_credentials.aio(token, key)
                    self._app = await modal.App.lookup.aio(
                        self._account.app, create_if_missing=True, client=self._client
                    )
            return self._app, self._client

    async def close(self) -> None:
        await super().close()
        if self._client is not None:
            await self._client.close.aio()
            self._client = self._app = None

    async def _labels_of(self, sandbox: modal.Sandbox) -> Mapping[str, str]:
        """The labels of a sandbox, which never change: asked for once."""
        if sandbox.object_id not in self._labels:
            if len(self._labels) >= MOST_LABELS:
                self._labels.clear()
            self._labels[sandbox.object_id] = labels_of(await sandbox.get_tags.aio())
        return self._labels[sandbox.object_id]


def tags_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Modal's tags for labels: a value is escaped, and cut into pieces `label`, `label.1`, …, each after a `-`."""
    tags = {}
    for label, value in labels.items():
        escaped = quote(value, safe="").replace("_", "%5F").replace("~", "%7E").replace("%", "_")
        for number, at in enumerate(range(0, max(len(escaped), 1), TAG_CHARACTERS)):
            tags[f"{label}.{number}" if number else label] = f"-{escaped[at : at + TAG_CHARACTERS]}"
    return tags


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """The labels that `tags_of` made these of."""
    labels: dict[str, str] = {}
    for tag in sorted(tags, key=_place):
        label, _ = _place(tag)
        labels[label] = labels.get(label, "") + tags[tag].removeprefix("-")
    return {label: unquote(value.replace("_", "%")) for label, value in labels.items()}


def _place(tag: str) -> tuple[str, int]:
    label, _, number = tag.rpartition(".")
    return (label, int(number)) if label and number.isdigit() else (tag, 0)
