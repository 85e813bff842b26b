"""The machines of a cloud, as far as all clouds are alike; each cloud's module adapts the cloud's own package."""

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from clotho.errors import ClothoError, InvalidInput, IsolationUnavailable, SandboxLost, SandboxUnavailable
from clotho.escaping import truncate_middle
from clotho.plugins.clouds.channels import CloudChannel, Told
from clotho.plugins.clouds.config import CloudConfig
from clotho.plugins.containers.relay.machine import Base, Channel, Found, Start
from clotho.sandbox.backend import SandboxSpec

Config = TypeVar("Config", bound=CloudConfig)
Sandbox = TypeVar("Sandbox")

RETRIED_STATUSES = frozenset((408, 409, 425, 429))
"""HTTP statuses below 500 of requests that may succeed later."""
# chmod before mv: a program that is in its place can be run
MOVE = 'while [ $# -gt 0 ]; do chmod 755 "$1" && mv -f "$1" "$2" || exit 1; shift 2; done'


class CloudMachines(ABC, Generic[Config, Sandbox]):
    """A `Machine` whose machines are sandboxes of an account at a cloud."""

    kind: str
    cloud: str
    """The cloud's name in errors."""
    config: type[Config]
    starts_first = False
    extends = True
    remove_ended = None
    max_lifetime_seconds: float | None = None

    def __init__(self, creations_per_second: float) -> None:
        self._pace = Pace(creations_per_second)
        self._images: dict[str, asyncio.Task[str]] = {}
        self._sandboxes: dict[str, Sandbox] = {}
        """The package's object for each machine that was used lately: it is dropped when the machine is gone."""

    # ---- the cloud's own ----

    @abstractmethod
    def clotho_error(self, error: Exception) -> type[ClothoError] | None:
        """The class of Clotho's error for one of the package: SandboxLost for what isn't found, None for others."""

    @abstractmethod
    async def _image(self, config: Config, spec: SandboxSpec) -> str:
        """The image for `_create`."""

    @abstractmethod
    async def _create(
        self,
        name: str,
        image: str,
        spec: SandboxSpec,
        config: Config,
        labels: Mapping[str, str],
        lifetime_seconds: float,
    ) -> None: ...

    @abstractmethod
    async def _find(self, name: str) -> Found:
        """Raises an error that means SandboxLost where there is none."""

    @abstractmethod
    async def _list(self, labels: Mapping[str, str]) -> Sequence[Found]: ...

    @abstractmethod
    async def _put(self, sandbox: Sandbox, files: Mapping[str, bytes], then: Sequence[str]) -> str:
        """Write files, then run a command; returns why that failed, empty where it didn't."""

    @abstractmethod
    async def _open(self, sandbox: Sandbox, argv: Sequence[str], told: Told) -> CloudChannel: ...

    @abstractmethod
    async def _destroy(self, name: str) -> None: ...

    # ---- the same for all ----

    async def base(self, spec: SandboxSpec) -> Base:
        config = self._config(spec)
        return Base(image=await self._image(config, spec), user=config.user or "")

    async def create(
        self,
        name: str,
        base: Base,
        spec: SandboxSpec,
        labels: Mapping[str, str],
        lifetime_seconds: float,
        start: Start | None = None,
    ) -> None:
        """Make the machine anew where one of the name has stopped: its processes have ended."""
        config = self._config(spec)
        found = await self.find(name)
        if found is not None and found.running:
            return
        if found is not None:
            await self.destroy(name)
        await self._pace.turn()
        # what isn't found while a machine is made is its image
        with self.told(name, InvalidInput):
            await self._create(name, base.image, spec, config, labels, lifetime_seconds)

    async def find(self, name: str) -> Found | None:
        try:
            with self.told(name):
                return await self._find(name)
        except SandboxLost:
            self._sandboxes.pop(name, None)
            return None

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        """Files are written beside their places, and then moved there."""
        sandbox = await self._sandbox(name)
        first = {path: f"{path}.{secrets.token_hex(4)}" for path in files}
        moves = [each for path in files for each in (first[path], path)]
        contents = {first[path]: content for path, content in files.items()}
        async with self._told_of(name):
            failed = await self._put(sandbox, contents, ["sh", "-c", MOVE, "sh", *moves])
        if failed:
            raise SandboxUnavailable(f"files can't be put into {name}: {truncate_middle(failed)}")

    async def open(self, name: str, argv: Sequence[str]) -> Channel:
        sandbox = await self._sandbox(name)
        async with self._told_of(name):
            return await self._open(sandbox, argv, partial(self.told, name, SandboxUnavailable))

    async def snapshot(self, name: str) -> Base | None:
        return None

    async def destroy(self, name: str) -> None:
        with suppress(SandboxLost), self.told(name):
            await self._destroy(name)

    async def list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        with self.told("list", InvalidInput):
            return await self._list(labels)

    async def close(self) -> None:
        self._sandboxes.clear()

    def _config(self, spec: SandboxSpec) -> Config:
        """Raises IsolationUnavailable for bounds that no cloud is known to enforce."""
        if not isinstance(spec.backend, self.config):
            raise InvalidInput(f"sandboxes of {spec.backend.name} aren't made at {self.cloud}")
        if spec.limits == "required":
            raise IsolationUnavailable(
                f"the disk of a sandbox at {self.cloud} can't be bounded (limits: required)"
            )
        return spec.backend

    async def _built(self, image: str, build: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """The image that `build` returns: built once for all who ask for it, and again where that failed."""
        building = self._images.get(image)
        if building is None or (building.done() and (building.cancelled() or building.exception())):
            building = self._images[image] = asyncio.create_task(build())
        # a caller that is cancelled must not end it for the others
        return await asyncio.shield(building)

    async def _sandbox(self, name: str) -> Sandbox:
        if name not in self._sandboxes:
            found = await self.find(name)
            if found is None or not found.running:
                raise SandboxLost(f"{self.cloud} has no sandbox {name} that runs")
        return self._sandboxes[name]

    @contextmanager
    def told(self, subject: str, missing: type[ClothoError] = SandboxLost) -> Iterator[None]:
        """Raise the package's errors as Clotho's; what isn't found is `missing`."""
        try:
            yield
        except Exception as error:
            kind = self.clotho_error(error)
            if kind is None:
                raise
            text = truncate_middle(f"{self.cloud}, {subject}: {str(error) or type(error).__name__}")
            raise (missing if kind is SandboxLost else kind)(text) from error

    @asynccontextmanager
    async def _told_of(self, name: str) -> AsyncIterator[None]:
        """Translate errors as `told` does, and forget a machine that is gone: the next call looks for it again."""
        try:
            with self.told(name):
                yield
        except SandboxLost:
            self._sandboxes.pop(name, None)
            raise


class Pace:
    """Lets `per_second` calls a second pass, evenly spaced, in the order in which they came."""

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._next = 0.0

    async def turn(self) -> None:
        """Return when it is the caller's turn. One that is cancelled meanwhile leaves its turn unused."""
        now = time.monotonic()
        mine = max(self._next, now)
        self._next = mine + self._interval
        await asyncio.sleep(mine - now)
