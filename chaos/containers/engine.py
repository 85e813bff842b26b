"""A container engine of a cell's own: podman, of which one part or everything can be killed."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import docker
from docker.errors import DockerException

from chaos.waiting import until
from clotho.errors import SandboxUnavailable
from clotho.plugins.containers.engine import Engine
from clotho.processes.child import ChildProcess
from tests.containers import CONTAINERS, STORAGE
from tests.machine_image import IMAGE, machine_image

SHARED_IMAGES = """\
[storage.options]
additionalimagestores = ["{images}"]
"""
OF_ITS_OWN = """\
tmp_dir = "{folder}/tmp"
lock_type = "file"
"""
"""Podman's engines on a machine share locks and a folder by default: what one leaves when it dies meets others."""
ANSWER_SECONDS = 60.0


def lacking() -> str | None:
    """Why this machine and this user can have no engine of their own; None if they can."""
    there = os.geteuid() == 0 and all(map(shutil.which, ("podman", "runc")))
    return None if there else "an engine of its own takes root, podman and runc"


class PodmanEngine:
    """Podman with its files in `folder`, and the images of the engine whose files are in `images`.

    `runtime` is the program that makes containers.
    """

    def __init__(self, folder: Path, images: Path | None = None, runtime: str = "runc") -> None:
        self._folder = folder
        self._images = images
        self._runtime = runtime
        self.address = f"unix://{folder}/podman.sock"
        variables = {
            "CONTAINERS_STORAGE_CONF": folder / "storage.conf",
            "CONTAINERS_CONF": folder / "containers.conf",
        }
        self._service = ChildProcess(
            [
                *("env", *(f"{name}={value}" for name, value in variables.items())),
                *("podman", "system", "service", "--time", "0", self.address),
            ],
            folder / "podman.log",
        )

    @property
    def sdk(self) -> docker.DockerClient:
        return Engine(self.address).client

    async def make(self) -> None:
        """Its folder, and the service."""
        self._folder.mkdir()
        shared = SHARED_IMAGES.format(images=self._images / "graph") if self._images else ""
        (self._folder / "storage.conf").write_text(STORAGE.format(folder=self._folder) + shared)
        settings = CONTAINERS.replace('"runc"', f'"{self._runtime}"')
        (self._folder / "containers.conf").write_text(settings + OF_ITS_OWN.format(folder=self._folder))
        await self.start()

    async def start(self) -> None:
        await self._service.start()
        await until(self._answers, "an engine that answers", ANSWER_SECONDS)

    async def _answers(self) -> bool:
        def asked() -> bool:
            try:
                return bool(self.sdk.ping())
            except (SandboxUnavailable, DockerException):
                return False

        return await asyncio.to_thread(asked)

    async def kill(self) -> None:
        """SIGKILL of the service: containers and what watches each of them go on."""
        await self._service.kill()

    async def kill_everything(self) -> None:
        """SIGKILL of the service, of what watches containers, and of all that runs in them."""
        await self.kill()
        while left := await asyncio.to_thread(lambda: [*self._own_processes(), *self._contained()]):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    async def end(self) -> None:
        """Everything, and what is mounted."""
        await self.kill_everything()
        for point in self._mounts():
            await (await asyncio.create_subprocess_exec("umount", "--lazy", str(point))).wait()

    # ---- what is left ----

    async def left(self) -> list[str]:
        """Containers, images, processes and mounts of sandboxes; of the engine itself, its service is left."""
        return await asyncio.to_thread(lambda: list(self._left()))

    def _left(self) -> Iterator[str]:
        names = {str(each.name) for each in self.sdk.containers.list(all=True, ignore_removed=True)}
        yield from (f"container {name}" for name in sorted(names | set(self._stored())))
        yield from (
            f"image {tag}" for each in self.sdk.api.images() for tag in each["RepoTags"] if IMAGE not in tag
        )
        watching = (pid for pid in self._own_processes() if pid != self._service.pid)
        yield from (f"process {pid} ({_name(pid)})" for pid in (*watching, *self._contained()))
        storage = self._folder / "graph" / "overlay"
        yield from (f"mount {point}" for point in self._mounts() if point != storage)

    def _stored(self) -> Iterator[str]:
        """The containers that have files, also those that the engine itself doesn't know any more."""
        for kind in ("containers", "volatile-containers"):
            file = self._folder / "graph" / "overlay-containers" / f"{kind}.json"
            if file.exists():
                yield from (name for each in json.loads(file.read_text()) for name in each.get("names", ()))

    def _own_processes(self) -> Iterator[int]:
        """The service, and what was started with paths of the engine, as what watches a container is."""
        for process in _processes():
            with suppress(OSError):
                if f"{self._folder}/".encode() in (process / "cmdline").read_bytes():
                    yield int(process.name)

    def _contained(self) -> Iterator[int]:
        """The processes whose root is a container's."""
        for process in _processes():
            with suppress(OSError):
                mounts = (process / "mountinfo").read_text().splitlines()
                root = next((line for line in mounts if line.split()[4] == "/"), "")
                if f"{self._folder}/graph/overlay" in root:
                    yield int(process.name)

    def _mounts(self) -> list[Path]:
        """The last mounted first."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [Path(line.split()[4]) for line in lines]
        return [point for point in reversed(points) if point.is_relative_to(self._folder)]


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "ended"


def _processes() -> Iterator[Path]:
    return (path for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) != os.getpid())


@asynccontextmanager
async def engine_in(
    folder: Path, images: Path | None = None, runtime: str = "runc"
) -> AsyncIterator[PodmanEngine]:
    """Nothing of it runs, and nothing is mounted, afterwards."""
    engine = PodmanEngine(folder, images, runtime)
    try:
        await engine.make()
        yield engine
    finally:
        await engine.end()


async def make_images(folder: Path) -> None:
    """The files of an engine that has the image of this machine's programs."""
    async with engine_in(folder) as engine:
        await asyncio.to_thread(machine_image, engine.sdk)
