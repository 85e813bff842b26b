"""A container engine for tests, and an S3 server in a container, or as a process where there is no engine."""

import io
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException, ImageNotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from clotho.config import cache_folder, variable
from clotho.host import program_on_path
from tests.machine_image import machine_image
from tests.s3_server import FOLDERS, S3Server, s3_server_binary, s3_server_process
from tests.support import PATIENCE_SECONDS

IMAGE = "localhost/clotho-test-versitygw-1.8.0"
"""The version is part of the name, as podman ignores the tag that an import asks for."""
MONITOR = "/conmon\0"

STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""
CONTAINERS = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class NoEngine(Exception):
    """Containers can't be run here; says why."""


@contextmanager
def container_engine(folder: Path) -> Iterator[None]:
    """The engine that answers already, else podman with its files in `folder`; DOCKER_HOST names it meanwhile."""
    testcontainers_config.ryuk_disabled = True
    if _answering():
        yield
        return
    if os.geteuid() != 0 or not shutil.which("podman") or not shutil.which("runc"):
        raise NoEngine("no Docker daemon answers, and starting podman takes root, podman and runc")
    folder.mkdir()
    (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
    (folder / "containers.conf").write_text(CONTAINERS)
    variables = {
        "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf",
        "CONTAINERS_CONF": f"{folder}/containers.conf",
    }
    address = f"unix://{folder}/podman.sock"
    with (folder / "podman.log").open("wb") as log, pytest.MonkeyPatch.context() as patch:
        command = ["podman", "system", "service", "--time", "0", address]
        service = subprocess.Popen(command, env=os.environ | variables, stdout=log, stderr=log, cwd=folder)
        patch.setenv("DOCKER_HOST", address)
        try:
            _wait_until_answering(service, folder / "podman.log")
            yield
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait()
            _wait_until_left(str(folder))
            while f" {folder}/graph/overlay " in Path("/proc/mounts").read_text():
                subprocess.run(["umount", "--lazy", f"{folder}/graph/overlay"], check=True)


def _wait_until_left(folder: str) -> None:
    """Processes that clean up after the last containers mount the engine's storage once more.

    Each command of a container has a monitor too, which stays for five minutes.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := [path for path in Path("/proc").glob("[0-9]*") if folder in _command_line(path)]:
        for path in left:
            if MONITOR in _command_line(path):
                with suppress(ProcessLookupError):
                    os.kill(int(path.name), signal.SIGKILL)
        if time.monotonic() > deadline:
            warnings.warn(f"processes of the engine in {folder} are left", stacklevel=1)
            return
        time.sleep(0.02)


def _command_line(process: Path) -> str:
    """Empty for one that has ended, and for this one, whose arguments may name the folder."""
    with suppress(OSError):
        if int(process.name) != os.getpid():
            return (process / "cmdline").read_bytes().decode(errors="replace")
    return ""


def _answering() -> bool:
    try:
        client = docker.from_env(timeout=round(PATIENCE_SECONDS))
        return bool(client.ping())
    except DockerException:
        return False


def _wait_until_answering(service: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _answering():
        if service.poll() is not None or time.monotonic() > deadline:
            raise NoEngine(f"podman doesn't serve: {log.read_text()[-500:]}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def engine(folder: Path) -> Iterator[str]:
    """The address of a container engine that has the image of this machine's programs."""
    with ExitStack() as stack:
        try:
            stack.enter_context(container_engine(folder / "engine"))
        except NoEngine as reason:
            pytest.skip(str(reason))
        machine_image()
        yield variable("DOCKER_HOST") or ""


def _import_image(binary: Path) -> None:
    """An image that holds the server and the folders it needs, made here: no registry is asked."""
    client = docker.from_env(timeout=round(PATIENCE_SECONDS))
    try:
        client.images.get(IMAGE)
    except ImageNotFound:
        root = io.BytesIO()
        with tarfile.open(fileobj=root, mode="w") as tar:
            for folder in ("tmp", *FOLDERS):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o777
                tar.addfile(entry)
            tar.add(binary, "versitygw")
        client.api.import_image_from_data(root.getvalue(), repository=IMAGE)


@contextmanager
def _s3_server_container(binary: Path) -> Iterator[S3Server]:
    server = S3Server.on_free_port(binary)
    _import_image(binary)
    container = (
        DockerContainer(IMAGE)
        .with_command(server.command(Path("/versitygw"), Path("/")))
        .with_kwargs(network_mode="host")
    )
    for name, value in server.administrator.items():
        container.with_env(name, value)
    with container:
        yield server


@pytest.fixture(scope="session")
async def s3_server() -> AsyncIterator[S3Server]:
    """A real S3 server, its administrator's credentials unknown to the environment."""
    binary = await s3_server_binary(
        cache_folder() / "bin", on_path=program_on_path("versitygw"), go=program_on_path("go")
    )
    if binary is None:
        pytest.skip("there is no S3 server: put versitygw on PATH, or install Go so that it can be built")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clotho-test-s3-")))
        try:
            stack.enter_context(container_engine(folder / "engine"))
            server = stack.enter_context(_s3_server_container(binary))
            await server.ready()
        except (NoEngine, DockerException, TimeoutError) as reason:
            warnings.warn(f"the S3 server runs as a plain process: {reason}", stacklevel=1)
            server = await stack.enter_async_context(s3_server_process(binary, folder / "process"))
        yield server
