"""A worker's image, built here without any registry of images, and started in a container: `make test-image`."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from clotho.config import variable
from tests.cli.command import Finished, run
from tests.containers import CONTAINERS, STORAGE
from tests.deploy.base import base_root

BASE, IMAGE = "localhost/clotho-test-base", "localhost/clotho-test-image"
NEEDED = ("buildah", "podman", "runc", "debootstrap")
CERTIFICATES = "/etc/ssl/certs"


@dataclass(frozen=True)
class Builder:
    """buildah and podman with their files in one folder."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
        }

    async def __call__(self, *command: str | Path) -> Finished:
        return await run(*command, environment=self.environment)

    async def done(self, *command: str | Path) -> str:
        finished = await self(*command)
        assert finished.status == 0, f"{command}: {finished.output[-2_000:]}{finished.error[-4_000:]}"
        return finished.output

    async def build(self) -> None:
        archive = await base_root()
        assert archive is not None
        await self.done("podman", "import", "--quiet", archive, BASE)
        certificate, pip = variable("PIP_CERT"), self.folder / "pip.conf"
        lines = [f"{name} = {value}" for name in ("cert", "index-url") if (value := variable(pip_name(name)))]
        pip.write_text("\n".join(["[global]", *lines, ""]))
        mount = [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro"] if certificate else []
        await self.done(
            *("buildah", "build", "--quiet", "--isolation=chroot", "--format=docker", *mount),
            *(f"--build-arg=BASE={BASE}", f"--secret=id=pip,src={pip}", f"--tag={IMAGE}", "."),
        )


def pip_name(setting: str) -> str:
    return f"PIP_{setting.upper().replace('-', '_')}"


@contextmanager
def builder_in(folder: Path) -> Iterator[Builder]:
    folder.mkdir()
    (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
    (folder / "containers.conf").write_text(CONTAINERS)
    builder = Builder(folder)
    try:
        yield builder
    finally:
        environment = os.environ | builder.environment
        subprocess.run(["podman", "rm", "--all", "--force", "--time=0"], env=environment, capture_output=True)
        while f" {folder}/graph/overlay " in Path("/proc/mounts").read_text():
            subprocess.run(["umount", "--lazy", f"{folder}/graph/overlay"], check=True)


@pytest.fixture(scope="module")
async def image(folder: Path) -> AsyncIterator[Builder]:
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"building an image takes root, and {', '.join(missing or NEEDED)}")
    with builder_in(folder / "image") as builder:
        await builder.build()
        yield builder


async def test_what_it_runs_by_itself(image: Builder) -> None:
    run_it = ("podman", "run", "--rm", "--no-healthcheck", IMAGE)
    assert "--roles" in await image.done(*run_it, "worker", "--help")
    examined = await image(*run_it, "doctor")
    assert (examined.status, "Traceback" in examined.error) == (1, False), examined.error
    assert "no Temporal server answers at 127.0.0.1:7233" in examined.output
    shown = await image.done("podman", "inspect", "--format={{.User}} {{.HealthCheck.Test}}", IMAGE)
    assert shown == "10001:10001 [CMD python -m clotho.monitoring.probe]\n"
