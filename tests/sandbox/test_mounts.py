"""Folders of the host that sandboxes see, read-only."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from pydantic import ValidationError

from clotho.errors import InvalidInput, IsolationUnavailable
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.rollouts.run import RunManifest
from clotho.run_settings import RunSettings
from clotho.runs.request import run_manifest
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.apart import Apart
from clotho.sandbox.local.backend import LocalBackend
from tests.machine_image import IMAGE
from tests.sandbox.backends import Backend
from tests.sandbox.conftest import BACKENDS, SPECS, Fresh, needs_root
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell

SEEN = "/opt/agents"
NOISE = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def programs(folder: Path) -> Path:
    """A folder of the host with a program in it."""
    made = folder / "programs"
    made.mkdir(mode=0o755)
    (made / "hello").write_text('#!/bin/sh\necho "hello from $0"\n')
    (made / "hello").chmod(0o755)
    (made / "large").write_bytes(NOISE)
    return made


SLOW = {"podman": "engine", "apptainer": "apptainer_image"}
"""Backends, and the fixture that each needs."""


@pytest.fixture(
    scope="module", params=["local", *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)]
)
def made_by(request: pytest.FixtureRequest) -> str:
    if request.param in SLOW:
        request.getfixturevalue(SLOW[request.param])
    return str(request.param)


@pytest.fixture(scope="module")
def backend(made_by: str, folder: Path) -> Backend:
    return BACKENDS[made_by](folder / f"mounts-{made_by}")


@pytest.fixture
def spec(made_by: str, programs: Path) -> SandboxSpec:
    return SandboxSpec.model_validate({**dict(SPECS[made_by]), "mounts": {SEEN: str(programs)}})


@pytest.fixture
async def mounted(backend: Backend, spec: SandboxSpec, lease: str) -> AsyncIterator[Shell]:
    yield Shell(await backend.create(lease, spec))
    await backend.destroy(lease)


async def test_commands_read_and_execute_and_change_nothing(mounted: Shell, programs: Path) -> None:
    assert await mounted.text(f"{SEEN}/hello") == f"hello from {SEEN}/hello"
    assert await mounted.text(f"wc -c < {SEEN}/large") == str(len(NOISE))
    for attempt in ("touch new", "rm hello", "echo >> hello", "chmod 777 hello", "mv hello hallo"):
        assert (await mounted.run(f"cd {SEEN} && {attempt}")).code != 0, attempt
    assert sorted(path.name for path in programs.iterdir()) == ["hello", "large"]
    content = await mounted.sandbox.read_file(f"{SEEN}/hello", 1000)
    assert content.content == (programs / "hello").read_bytes()


async def test_a_verifier_sees_the_folder_and_a_checkpoint_has_none_of_it(
    backend: Backend, mounted: Shell, spec: SandboxSpec, lease: str, tmp_path: Path
) -> None:
    await mounted.run("echo kept > /work/kept")
    copies = Copies(backend, spec.model_copy(update={"mounts": {}}), lease, tmp_path)
    taken = await copies.take(mounted)
    assert copies.blob.stat().st_size < len(NOISE) // 100
    without = await copies.restore(taken)
    assert await without.text(f"cat /work/kept; ls {SEEN} 2>&1 | grep -c hello") == "kept\n0"
    await copies.destroy()
    verifier = Shell(await backend.open_verifier(lease, 0, {"check": b"1"}))
    assert (
        await verifier.text(f"{SEEN}/hello; cat $CLOTHO_HIDDEN_FILES/check") == f"hello from {SEEN}/hello\n1"
    )
    assert (await verifier.run(f"touch {SEEN}/new")).code != 0


async def test_a_folder_that_the_host_lacks_is_named(backend: Backend, spec: SandboxSpec, lease: str) -> None:
    absent = spec.model_copy(update={"mounts": {SEEN: "/nowhere/agents"}})
    with pytest.raises(InvalidInput, match="no folder /nowhere/agents on this host"):
        await backend.create(lease, absent)
    assert not Path("/nowhere").exists()


@needs_root
async def test_a_folder_that_users_cannot_reach_is_refused(fresh: Fresh, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(InvalidInput, match="can't pass through"):
        await fresh(mounts={SEEN: str(closed)})


async def test_an_environments_source_is_not_shown(folder: Path, programs: Path, lease: str) -> None:
    spec = SandboxSpec(mounts={SEEN: str(programs)})
    with pytest.raises(IsolationUnavailable, match="hello"):
        await LocalBackend(folder / "private-mounts").create(lease, spec, private=[programs / "hello"])


async def test_without_isolation_a_folder_has_its_own_path_alone(
    folder: Path, programs: Path, lease: str
) -> None:
    bare = LocalBackend(folder / "bare-mounts", bubblewrap="not-installed")
    with pytest.raises(InvalidInput, match="no such path without isolation"):
        await bare.create(lease, SandboxSpec(unsafe_local=True, mounts={SEEN: str(programs)}))
    own = SandboxSpec(unsafe_local=True, mounts={"/opt": "/opt"})
    shell = Shell(await bare.create(lease, own))
    assert await shell.text("ls -d /opt") == "/opt"
    await bare.destroy(lease)


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder on a disk of its own, in a place whose mounts the thread of sandboxes hasn't got."""
    place = Path(mkdtemp(prefix="clotho-test-disk-"))
    place.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    (place / "agents").mkdir()
    (place / "agents" / "mark").write_text("here")
    yield place / "agents"
    subprocess.run(["umount", place], check=True)
    place.rmdir()


@needs_root
async def test_a_folder_on_a_disk_of_its_own_is_seen_whole(fresh: Fresh, elsewhere: Path) -> None:
    """Local sandboxes are started from few of the host's mounts."""
    shell = await fresh(mounts={SEEN: str(elsewhere), "/opt/disk": str(elsewhere.parent)})
    assert await shell.text(f"cat {SEEN}/mark /opt/disk/agents/mark") == "herehere"


@needs_root
def test_only_a_folder_of_another_disk_costs_the_hosts_mounts(elsewhere: Path, programs: Path) -> None:
    apart = Apart((programs,))
    mounts = Path("/proc/thread-self/ns/mnt")
    here = mounts.readlink()
    with apart.with_mount(elsewhere.parent, (programs,)) as call:
        assert call(mounts.readlink) != here
    for folder in (elsewhere, elsewhere.parent, elsewhere.parent.parent):
        with apart.with_mount(elsewhere.parent, (folder,)) as call:
            assert call(mounts.readlink) == here


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        ({"/usr/agents": "/srv"}, "nothing can be mounted at '/usr/agents'"),
        ({"/etc": "/srv"}, "nothing can be mounted at '/etc'"),
        ({"/proc/x": "/srv"}, "nothing can be mounted"),
        ({"/dev/x": "/srv"}, "nothing can be mounted"),
        ({"/bin": "/srv"}, "nothing can be mounted"),
        ({"/lib64": "/srv"}, "nothing can be mounted"),
        ({"/": "/srv"}, "nothing can be mounted"),
        ({"opt/agents": "/srv"}, "nothing can be mounted"),
        ({"/opt/../etc": "/srv"}, "nothing can be mounted"),
        ({"/work/agents": "/srv"}, "'/work/agents' and '/work' lie within each other"),
        ({"/home": "/srv"}, "'/home' and '/home/agent' lie within each other"),
        ({"/tmp/agents": "/srv"}, "lie within each other"),
        ({"/var": "/srv"}, "lie within each other"),
        ({"/logs/agents": "/srv"}, "'/logs/agents' and '/logs' lie within each other"),
        ({"/app": "/srv"}, "'/app' and '/app' lie within each other"),
        ({"/opt": "/srv", "/opt/agents": "/srv"}, "lie within each other"),
        ({"/opt/agents": "~/agents"}, "'~/agents' is no absolute path"),
        ({"/opt/agents": "agents"}, "'agents' is no absolute path"),
        ({"/opt/agents": "/srv/../etc"}, "is no absolute path"),
        ({"/opt/agents": "/srv:/etc"}, "is no absolute path"),
        ({"/opt/agents": ""}, "'' is no absolute path"),
    ],
)
def test_what_cannot_be_mounted_is_refused(mounts: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SandboxSpec(writable_roots=("/logs",), aliases={"/app": "/work"}, mounts=mounts)


def manifest(**settings: Any) -> RunManifest:
    return run_manifest("word_count", "mounting", "model", group_size=1).with_settings(
        RunSettings(**settings)
    )


def test_the_setting_reaches_the_sandbox_and_other_runs_stay_as_they_are() -> None:
    asked = "/opt/agents=/srv/agents, /opt/data=/srv/data"
    assert manifest(mounts=asked).sandbox.mounts == {"/opt/agents": "/srv/agents", "/opt/data": "/srv/data"}
    assert manifest(mounts='{"/opt/agents": "/srv/a=b"}').sandbox.mounts == {"/opt/agents": "/srv/a=b"}
    assert "mounts" not in manifest().model_dump(mode="json")["sandbox"]
    with pytest.raises(InvalidInput, match="mounts: Value error, nothing can be mounted at '/etc'"):
        manifest(mounts="/etc=/srv")


@pytest.mark.parametrize("image_place", ["/root/agents", "/scratch", "/scratch/agents", "/own"])
async def test_places_of_an_image_are_no_places_for_a_mount(
    folder: Path, engine: str, programs: Path, lease: str, image_place: str
) -> None:
    config = DockerConfig(image=IMAGE, workdir="/own", home="/root", tmpfs={"/scratch/agents": "size=1m"})
    containers = ContainerBackend(folder / "containers-mounts", engine or None)
    with pytest.raises(InvalidInput, match="lie within each other"):
        await containers.create(lease, SandboxSpec(backend=config, mounts={image_place: str(programs)}))


async def test_backends_without_the_hosts_folders_refuse_them(
    folder: Path, sshd: object, programs: Path, lease: str
) -> None:
    mounts = {"mounts": {SEEN: str(programs)}}
    for kind in ("ssh", "relay", "plain"):
        with pytest.raises(InvalidInput, match=r"no further folders|see no folder of the worker's host"):
            await BACKENDS[kind](folder / f"no-mounts-{kind}").create(
                lease, SPECS[kind].model_copy(update=mounts)
            )
