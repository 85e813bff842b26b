"""The clouds under test: a server of each on loopback, and the unchanged package of each as its client."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from clotho.plugins.clouds.accounts import DaytonaAccount, E2bAccount, ModalAccount
from clotho.plugins.clouds.config import CloudConfig, DaytonaConfig, E2bConfig, ModalConfig
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.machine import Machine
from clotho.sandbox.backend import SandboxSpec
from tests.sandbox.clouds.box import CloudServer

MODAL = ModalAccount(creations_per_second=1000)
E2B = E2bAccount(creations_per_second=1000)
DAYTONA = DaytonaAccount(creations_per_second=1000)
IMAGE = "debian:12"


@dataclass(frozen=True)
class Cloud:
    server: CloudServer
    client: Callable[[], Machine]
    """Machines as each worker process reaches them."""
    config: CloudConfig
    credential: str
    """The environment variable of it."""

    def spec(self, **changed: object) -> SandboxSpec:
        """`changed` are fields of the configuration."""
        config = type(self.config).model_validate({**self.config.model_dump(), **changed})
        return spec_of(config)


def modal_machines() -> Machine:
    from clotho.plugins.clouds.modal import ModalMachines

    return ModalMachines(MODAL)


def e2b_machines() -> Machine:
    from clotho.plugins.clouds.e2b import E2bMachines

    return E2bMachines(E2B)


def daytona_machines() -> Machine:
    from clotho.plugins.clouds.daytona import DaytonaMachines

    return DaytonaMachines(DAYTONA)


CLIENTS = {"modal": modal_machines, "e2b": e2b_machines, "daytona": daytona_machines}


@asynccontextmanager
async def modal_cloud(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Cloud]:
    pytest.importorskip("modal", reason="needs the package modal")
    from tests.sandbox.clouds.modal_server import ModalServer

    async with ModalServer(folder) as server:
        patch.setenv("MODAL_SERVER_URL", server.address)
        patch.setenv("MODAL_CONFIG_PATH", str(folder / "none"))
        patch.setenv(MODAL.token_id_variable, "ak-1")
        patch.setenv(MODAL.token_secret_variable, "as-1")
        config = ModalConfig(image=IMAGE)
        yield Cloud(server, modal_machines, config, MODAL.token_id_variable)


@asynccontextmanager
async def e2b_cloud(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Cloud]:
    pytest.importorskip("e2b", reason="needs the package e2b")
    from tests.sandbox.clouds.e2b_server import KEY, E2bServer

    async with E2bServer(folder) as server:
        patch.setenv("E2B_API_URL", server.address)
        patch.setenv("E2B_SANDBOX_URL", server.address)
        patch.setenv("E2B_HTTP_VERSION", "1.1")
        patch.setenv(E2B.api_key_variable, KEY)
        config = E2bConfig(image=IMAGE)
        yield Cloud(server, e2b_machines, config, E2B.api_key_variable)


@asynccontextmanager
async def daytona_cloud(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Cloud]:
    pytest.importorskip("daytona", reason="needs the package daytona")
    from daytona.handle.async_pty_handle import AsyncPtyHandle

    from tests.sandbox.clouds.daytona_server import KEY, DaytonaServer

    async def connected(self: AsyncPtyHandle) -> None:
        """The package's own waits for 10 s, which this machine may stand still for."""
        while not (self._connection_established or self._ws.closed):
            await asyncio.sleep(0.05)
        await wait_for_connection(self)

    wait_for_connection = AsyncPtyHandle.wait_for_connection
    patch.setattr(AsyncPtyHandle, "wait_for_connection", connected)
    async with DaytonaServer(folder) as server:
        patch.setenv("DAYTONA_API_URL", f"{server.address}/api")
        patch.setenv(DAYTONA.api_key_variable, KEY)
        config = DaytonaConfig(image=IMAGE)
        yield Cloud(server, daytona_machines, config, DAYTONA.api_key_variable)


CLOUDS = {"modal": modal_cloud, "e2b": e2b_cloud, "daytona": daytona_cloud}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="machines with processes of their own take root")


SPECS: dict[str, CloudConfig] = {
    "modal": ModalConfig(image=IMAGE),
    "e2b": E2bConfig(image=IMAGE),
    "daytona": DaytonaConfig(image=IMAGE),
}


opened: list[Path] = []
"""Where the clouds of the session's backends have their machines."""


@contextmanager
def opened_cloud(kind: str, folder: Path) -> Iterator[None]:
    """A cloud for a session's backends: in a thread, as tests may wait for other processes."""
    if os.geteuid() != 0:
        pytest.skip("machines with processes of their own take root")
    folder.mkdir()
    opened.append(folder)
    ready: Future[None] = Future()
    ends = threading.Event()

    async def serve() -> None:
        try:
            async with CLOUDS[kind](folder, patch):
                ready.set_result(None)
                await asyncio.to_thread(ends.wait)
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    with pytest.MonkeyPatch.context() as patch:
        serving = threading.Thread(target=lambda: asyncio.run(serve()))
        serving.start()
        try:
            ready.result()
            yield
        finally:
            ends.set()
            serving.join()


def cloud_backend(kind: str, root: Path) -> RelayedBackend:
    """Finds the cloud by environment variables, as other processes do."""
    return RelayedBackend(root, CLIENTS[kind]())


def cloud_spec(kind: str) -> SandboxSpec:
    return spec_of(SPECS[kind])


def spec_of(config: CloudConfig) -> SandboxSpec:
    return SandboxSpec(memory_mb=1024, disk_mb=1024).model_copy(update={"backend": config})
