"""A container engine as on another machine: reached over TCP, and sharing no folder with its sandboxes' worker."""

import asyncio
import os
import socket
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clotho.config import variable
from clotho.plugins.containers.machine import ContainerMachine
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.machine import Base, Start
from clotho.processes.ports import free_port
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.supervised.control import ControlDirectory
from tests.sandbox.clouds.cloud import opened
from tests.sandbox.clouds.live import MISSING
from tests.support import PATIENCE_SECONDS

ADDRESS, VOLUMES = "ENGINE_ELSEWHERE", "ENGINE_ELSEWHERE_VOLUMES"
"""The variables that hold the address of the engine, and the folder of its volumes: programs of tests see them."""


@pytest.fixture(scope="session")
def engine_elsewhere(engine: str, folder: Path) -> Iterator[str]:
    """The address of an engine that has the same images as the one of this host."""
    if not (folder / "engine" / "storage.conf").exists():
        pytest.skip("this takes the podman of the tests: another engine answers here")
    port = free_port()
    variables = {
        "CONTAINERS_STORAGE_CONF": f"{folder}/engine/storage.conf",
        "CONTAINERS_CONF": f"{folder}/engine/containers.conf",
    }
    address = f"tcp://127.0.0.1:{port}"
    service = subprocess.Popen(
        ["podman", "system", "service", "--time", "0", address],
        env=os.environ | variables,
        cwd=folder / "engine",
        stderr=subprocess.DEVNULL,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ADDRESS, address)
        patch.setenv(VOLUMES, f"{folder}/engine/graph/volumes")
        try:
            _wait_until_answering(port)
            yield address
        finally:
            service.terminate()
            service.wait()


def _wait_until_answering(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def relayed_backend(root: Path) -> RelayedBackend:
    return RelayedBackend(root, ContainerMachine(variable(ADDRESS), root / "locks"))


class LikeACloud(ContainerMachine):
    """Machines whose first process is their own, and whose files can't be kept as an image."""

    starts_first = False

    async def create(
        self,
        name: str,
        base: Base,
        spec: SandboxSpec,
        labels: Mapping[str, str],
        lifetime_seconds: float,
        start: Start | None = None,
    ) -> None:
        settings = {"entrypoint": ["sleep", "3600"], "user": "0:0", "network_mode": "none"}
        await asyncio.to_thread(self._engine.start, base.image, name, {**settings, "labels": dict(labels)})

    async def snapshot(self, name: str) -> Base | None:
        return None


def control_behind(incarnation: str) -> ControlDirectory:
    """The control directory of a supervisor, which this test can see since its engine is here after all."""
    engines = Path(variable(VOLUMES) or "/nonexistent").glob("*/_data/alive")
    clouds = (alive for folder in opened for alive in folder.glob("*/.control/alive"))
    every = (*engines, *clouds)
    if not every and None in MISSING.values():
        pytest.skip("this looks into the machine of a cloud")
    (found,) = (alive.parent for alive in every if alive.read_text().strip() == incarnation)
    return ControlDirectory(found, None)


@asynccontextmanager
async def link_with_late_ends(address: str) -> AsyncIterator[str]:
    """The address of an engine to which an archive's last block comes later than the others, as over a network."""
    host, port = address.removeprefix("tcp://").split(":")
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        connections.add(own)
        from_engine, to_engine = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_forward(reader, to_engine, late_seconds=0.3))
                both.create_task(_forward(from_engine, writer))
        finally:
            to_engine.close()
            writer.close()
            connections.discard(own)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for connection in tuple(connections):
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late_seconds: float = 0
) -> None:
    while content := await reader.read(1 << 16):
        if late_seconds and content.endswith(bytes(tarfile.BLOCKSIZE)):
            writer.write(content[: -tarfile.BLOCKSIZE])
            await asyncio.sleep(late_seconds)
            content = content[-tarfile.BLOCKSIZE :]
        writer.write(content)
        await writer.drain()
    writer.write_eof()
