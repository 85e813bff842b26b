"""Backends under conformance test: another one joins by an entry in BACKENDS, SPECS and OFFERED.

A test marked `needs` is left out for backends that don't offer what it names: `isolation`, where commands see
a file system of their own, `places`, names that a run gives to folders and the host to programs, or `same_process`,
where the test can change constants of what drives the supervisor, or `host_files`, where what is left of a sandbox
is on its host.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from clotho.config import variable
from clotho.plugins.apptainer.backend import ApptainerBackend
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.ssh.backend import SshBackend
from clotho.plugins.ssh.config import SshConfig
from clotho.plugins.ssh.remote.backend import RemoteBackend
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.config import CustomConfig
from clotho.sandbox.local.backend import LocalBackend
from examples.how_to.plain_backend import PlainBackend
from tests.conformance_table import PROPERTY, Conformance
from tests.containers import engine
from tests.machine_image import IMAGE
from tests.sandbox.apptainer_image import apptainer_image, apptainer_spec
from tests.sandbox.backends import Backend
from tests.sandbox.clouds.cloud import CLOUDS, cloud_backend, cloud_spec, opened_cloud
from tests.sandbox.clouds.live import KINDS as LIVE
from tests.sandbox.clouds.live import live_spec, require_imitated, require_live
from tests.sandbox.conformance_table import table
from tests.sandbox.copies import Copies
from tests.sandbox.engine_elsewhere import engine_elsewhere, relayed_backend
from tests.sandbox.fake_engine import served
from tests.sandbox.remote_host import piped_backend
from tests.sandbox.shell import Shell
from tests.sandbox.ssh_host import ssh_backend, sshd
from tests.support import PATIENCE_SECONDS, SHARED_LEASE

__all__ = ["apptainer_image", "engine", "engine_elsewhere", "served", "sshd"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="users and disks of their own need root")

BACKENDS: dict[str, Callable[[Path], Backend]] = {
    "local": lambda root: LocalBackend(root),
    "bare": lambda root: LocalBackend(root, bubblewrap="not-installed"),
    "plain": PlainBackend,
    "podman": lambda root: ContainerBackend(root, variable("DOCKER_HOST")),
    "commit": lambda root: ContainerBackend(root, variable("DOCKER_HOST")),
    "apptainer": ApptainerBackend,
    "relay": relayed_backend,
    "remote": piped_backend,
    "ssh": ssh_backend,
    **{cloud: partial(cloud_backend, cloud) for cloud in CLOUDS},
    **{kind: partial(cloud_backend, cloud) for kind, cloud in LIVE.items()},
}
SPECS = {
    "local": SandboxSpec(disk_mb=200, memory_mb=512),
    "bare": SandboxSpec(unsafe_local=True),
    "plain": SandboxSpec(backend=CustomConfig(class_name=PlainBackend(Path()).names[0]), unsafe_local=True),
    "podman": SandboxSpec(backend=DockerConfig(image=IMAGE, workdir="/work"), disk_mb=200, memory_mb=512),
    "commit": SandboxSpec(
        backend=DockerConfig(image=IMAGE, workdir="/work", checkpoint="commit"), disk_mb=200, memory_mb=512
    ),
    "apptainer": apptainer_spec(),
    "relay": SandboxSpec(backend=DockerConfig(image=IMAGE, workdir="/work"), disk_mb=200, memory_mb=512),
    "remote": SandboxSpec(disk_mb=200, memory_mb=512),
    "ssh": SandboxSpec(backend=SshConfig(), disk_mb=200, memory_mb=512),
    **{cloud: cloud_spec(cloud) for cloud in CLOUDS},
    **{kind: live_spec(cloud) for kind, cloud in LIVE.items()},
}


OFFERED = {
    "local": {"isolation", "places", "same_process", "host_files"},
    "bare": {"places", "same_process", "host_files"},
    "plain": {"same_process", "host_files"},
    "podman": {"places", "same_process", "host_files"},
    "commit": {"same_process", "host_files"},
    "apptainer": {"places", "same_process", "host_files"},
    "relay": {"places"},
    "remote": {"isolation", "places", "host_files"},
    "ssh": {"isolation", "places", "host_files"},
    **{cloud: {"places"} for cloud in (*CLOUDS, *LIVE)},
}
QUICK = ("test_conformance_leases", "test_conformance_verifier", "test_conformance_places")
"""Tests of SLOW backends in every run of the tests, but for the relay's; the rest takes minutes."""
SLOW = ("podman", "commit", "apptainer", "relay", "remote", "ssh")
NOT_OF_CLOUDS = ("test_conformance_checkpoints", "test_conformance_freeze", "test_conformance_places")
"""What clouds aren't held to: the relay's backend, which makes their sandboxes, is."""
OF_COMMITS = ("test_conformance_checkpoints", "test_conformance_freeze")
"""What containers are held to once more whose checkpoints keep their image's system."""
OF_STREAMS = (*QUICK, "test_conformance_checkpoints", "test_conformance_files")
ANEW = {
    "plain": (*QUICK, "test_conformance_jobs"),
    "commit": ("test_conformance_checkpoints",),
    "relay": (*OF_STREAMS, "test_conformance_losses"),
    "remote": OF_STREAMS,
    **dict.fromkeys(("ssh", *CLOUDS), ("test_conformance_leases",)),
}
"""What backends do by themselves whose sandboxes are otherwise driven as those of the local backend, of podman, of
a stream or of a relay are: they are held to the rest where OPTION is given."""
LOCAL = ("local", "bare")
"""The local backend, with and without isolation."""


PATIENT = (
    "clotho.sandbox.supervised.launch.READY_SECONDS",
    "clotho.sandbox.supervised.verifying.SEAL_SECONDS",
    "clotho.sandbox.supervised.archives.ANSWER_SECONDS",
    "clotho.sandbox.local.cgroups.END_SECONDS",
    "clotho.sandbox.local.processes.END_SECONDS",
    "clotho.plugins.containers.engine.REMOVE_SECONDS",
    "clotho.plugins.containers.relay.loop.RENEW_SECONDS",
    "clotho.plugins.ssh.remote.connection.GREETING_SECONDS",
    "clotho.plugins.ssh.host.CONNECT_SECONDS",
)
"""The times that hosts give to what ends or answers at once: tests give it as long as they wait themselves."""


@pytest.fixture(scope="module", autouse=True)
def patient_hosts() -> Iterator[None]:
    patch = be_patient()
    yield
    patch.undo()


def be_patient() -> pytest.MonkeyPatch:
    """Also in programs that tests run."""
    patch = pytest.MonkeyPatch()
    for name in PATIENT:
        patch.setattr(name, PATIENCE_SECONDS)
    return patch


OPTION = "--write-conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, metavar="PAGE", help="write what backends passed into this page")


def pytest_configure(config: pytest.Config) -> None:
    page = config.getoption(OPTION, None)
    if page is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Conformance(page, table))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Reports carry the area and the backend, also from the processes of xdist."""
    for item in items:
        area = item.path.stem.removeprefix("test_conformance_")
        if isinstance(item, pytest.Function) and area != item.path.stem and hasattr(item, "callspec"):
            item.user_properties.append((PROPERTY, [area, item.callspec.params.get("kind", "")]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The conformance suite is for all backends; other tests know the local one."""
    if "kind" not in metafunc.fixturenames:
        return
    name = metafunc.module.__name__.rpartition(".")[2]
    conformance = name.startswith("test_conformance_")
    needed = {name for mark in metafunc.definition.iter_markers("needs") for name in mark.args}
    kinds = [kind for kind in BACKENDS if needed <= OFFERED[kind] and (conformance or kind in LOCAL)]
    kinds = [kind for kind in kinds if kind not in (*CLOUDS, *LIVE) or name not in NOT_OF_CLOUDS]
    kinds = [kind for kind in kinds if kind != "commit" or name in OF_COMMITS]
    whole = metafunc.config.getoption(OPTION, None) is not None
    kinds = [kind for kind in kinds if whole or name in ANEW.get(kind, (name,))]
    slow = {*CLOUDS, *LIVE, *(kind for kind in SLOW if name not in QUICK or kind == "relay")}
    marked = [pytest.param(kind, marks=pytest.mark.slow) if kind in slow else kind for kind in kinds]
    metafunc.parametrize("kind", marked, indirect=True, scope="session")


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    if request.param in ("podman", "commit"):
        request.getfixturevalue("engine")
    if request.param == "apptainer":
        request.getfixturevalue("apptainer_image")
    if request.param == "relay":
        request.getfixturevalue("engine_elsewhere")
    if request.param == "ssh":
        request.getfixturevalue("sshd")
    if request.param in LIVE:
        require_live(LIVE[request.param])
    if request.param in CLOUDS:
        require_imitated(request.param)
        request.getfixturevalue(f"{request.param}_server")
    return str(request.param)


@pytest.fixture(scope="session")
def modal_server(folder: Path) -> Iterator[None]:
    with opened_cloud("modal", folder / "modal"):
        yield


@pytest.fixture(scope="session")
def e2b_server(folder: Path) -> Iterator[None]:
    with opened_cloud("e2b", folder / "e2b"):
        yield


@pytest.fixture(scope="session")
def daytona_server(folder: Path) -> Iterator[None]:
    with opened_cloud("daytona", folder / "daytona"):
        yield


@pytest.fixture(scope="session")
def spec(kind: str) -> SandboxSpec:
    return SPECS[kind]


@pytest.fixture(scope="session")
async def backend(kind: str, folder: Path) -> AsyncIterator[Backend]:
    made = BACKENDS[kind](folder / f"sandboxes-{kind}")
    yield made
    await closed(made)


async def closed(backend: Backend) -> None:
    """End the connections of this event loop."""
    if isinstance(backend, RemoteBackend | SshBackend):
        await backend.close()


@pytest.fixture
def lease(request: pytest.FixtureRequest) -> str:
    return f"test/{request.node.name}/lease/0"


@pytest.fixture(scope="session")
async def shell(backend: Backend, spec: SandboxSpec) -> AsyncIterator[Shell]:
    """A sandbox that tests share."""
    yield Shell(await backend.create("shared/lease/0", spec.model_copy(update=SHARED_LEASE)))
    await backend.destroy("shared/lease/0")


@pytest.fixture
async def own(backend: Backend, spec: SandboxSpec, lease: str) -> AsyncIterator[Shell]:
    """A sandbox that the test may wreck."""
    yield Shell(await backend.create(lease, spec))
    await backend.destroy(lease)


@pytest.fixture
async def copies(backend: Backend, spec: SandboxSpec, lease: str, tmp_path: Path) -> AsyncIterator[Copies]:
    made = Copies(backend, spec, lease, tmp_path)
    yield made
    await made.destroy()


@pytest.fixture(scope="session")
def local(folder: Path) -> LocalBackend:
    return LocalBackend(folder / "sandboxes-local")


Fresh = Callable[..., Awaitable[Shell]]


@pytest.fixture
async def fresh(local: LocalBackend, lease: str) -> AsyncIterator[Fresh]:
    """Makes the test's isolated sandbox, with fields of its spec changed."""

    async def made(**changed: object) -> Shell:
        return Shell(await local.create(lease, SPECS["local"].model_copy(update=changed)))

    yield made
    await local.destroy(lease)


@pytest.fixture
async def isolated(local: LocalBackend, lease: str) -> AsyncIterator[Shell]:
    """An isolated sandbox that the test may wreck."""
    yield Shell(await local.create(lease, SPECS["local"]))
    await local.destroy(lease)
