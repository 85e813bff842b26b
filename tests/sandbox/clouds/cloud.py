"""The clouds under test: a server of each on loopback, and the unchanged package of each as its client."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from clotho.clouds import DaytonaAccount, E2bAccount, ModalAccount
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.clouds.config import CloudConfig, DaytonaConfig, E2bConfig, ModalConfig
from clotho.sandbox.relay.machine import Machine
from tests.sandbox.clouds.box import CloudServer

CREATIONS_PER_SECOND = 1000.0


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
        return SandboxSpec(memory_mb=1024, disk_mb=1024).model_copy(update={"backend": config})


@asynccontextmanager
async def modal_cloud(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Cloud]:
    pytest.importorskip("modal", reason="needs the package modal")
    from clotho.sandbox.clouds.modal import ModalMachines
    from tests.sandbox.clouds.modal_server import ModalServer

    account = ModalAccount(creations_per_second=CREATIONS_PER_SECOND)
    async with ModalServer(folder) as server:
        patch.setenv("MODAL_SERVER_URL", server.address)
        patch.setenv("MODAL_CONFIG_PATH", str(folder / "none"))
        patch.setenv(account.token_id_variable, "ak-1")
        patch.setenv(account.token_secret_variable, "as-1")
        config = ModalConfig(image="debian:12")
        yield Cloud(server, lambda: ModalMachines(account), config, account.token_id_variable)


@asynccontextmanager
async def e2b_cloud(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Cloud]:
    pytest.importorskip("e2b", reason="needs the package e2b")
    from clotho.sandbox.clouds.e2b import E2bMachines
    from tests.sandbox.clouds.e2b_server import KEY, E2bServer

    account = E2bAccount(creations_per_second=CREATIONS_PER_SECOND)
    async with E2bServer(folder) as server:
        patch.setenv("E2B_API_URL", server.address)
        patch.setenv("E2B_SANDBOX_URL", server.address)
        patch.setenv("E2B_HTTP_VERSION", "1.1")
        patch.setenv(account.api_key_variable, KEY)
        config = E2bConfig(image="debian:12")
        yield Cloud(server, lambda: E2bMachines(account), config, account.api_key_variable)


@asynccontextmanager
async def daytona_cloud(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Cloud]:
    pytest.importorskip("daytona", reason="needs the package daytona")
    from clotho.sandbox.clouds.daytona import DaytonaMachines
    from tests.sandbox.clouds.daytona_server import KEY, DaytonaServer

    account = DaytonaAccount(creations_per_second=CREATIONS_PER_SECOND)
    async with DaytonaServer(folder) as server:
        patch.setenv("DAYTONA_API_URL", f"{server.address}/api")
        patch.setenv(account.api_key_variable, KEY)
        config = DaytonaConfig(image="debian:12")
        yield Cloud(server, lambda: DaytonaMachines(account), config, account.api_key_variable)


CLOUDS = {"modal": modal_cloud, "e2b": e2b_cloud, "daytona": daytona_cloud}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="machines with processes of their own take root")
