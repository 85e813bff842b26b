"""What commands do to a sandbox behind a relay is told as theirs, and isn't waited for as an outage is."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clotho.errors import InvalidInput, SandboxLost, WorkspaceRefused
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.records import RelayFolder
from clotho.sandbox.backend import SandboxSpec
from tests.machine_image import IMAGE
from tests.sandbox.clouds.cloud import CLOUDS, needs_root
from tests.sandbox.engine_elsewhere import LikeACloud, relayed_backend
from tests.sandbox.shell import Shell

SPEC = SandboxSpec(backend=DockerConfig(image=IMAGE, workdir="/work"), disk_mb=200, memory_mb=512)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "clotho-tests", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@needs_root
@pytest.mark.parametrize("then", ["command", "verification"])
async def test_a_machine_whose_disk_commands_have_filled_is_lost_for_that_reason(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease: str, then: str
) -> None:
    monkeypatch.setattr("clotho.plugins.containers.relay.control.RECHECK_SECONDS", 0.2)
    async with CLOUDS["e2b"](small_disk, monkeypatch) as cloud:
        backend = RelayedBackend(tmp_path / "sandboxes", cloud.client())
        shell = Shell(await backend.create(lease, cloud.spec()))
        await shell.run("head -c 1G /dev/zero > fill")
        with pytest.raises(SandboxLost, match="disk") as lost:
            if then == "command":
                await shell.run("true")
            else:
                await backend.open_verifier(lease, 0, {})
        assert lost.value.exhausted == "disk"
        await backend.destroy(lease)


async def test_more_than_a_verifier_can_be_given_is_refused_before_there_is_one(
    engine_elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease: str
) -> None:
    monkeypatch.setattr("clotho.plugins.containers.relay.verifiers.MAX_CHECKPOINT_BYTES", 1 << 20)
    made: list[str] = []

    class Noting(LikeACloud):
        async def create(self, name: str, *asked: object) -> None:
            made.append(name)
            await super().create(name, *asked)  # type: ignore[arg-type]

    backend = RelayedBackend(tmp_path, Noting(engine_elsewhere, tmp_path / "locks"))
    shell = Shell(await backend.create(lease, SPEC))
    await shell.run("head -c 2M /dev/zero > large")
    with pytest.raises(WorkspaceRefused, match="more than 1048576"):
        await backend.open_verifier(lease, 0, {})
    assert made == [RelayFolder.of_lease(tmp_path.absolute(), lease).machine]
    await backend.destroy(lease)


A_FILE = "cd /; rm -rf {0} && touch {0}"


@pytest.mark.parametrize(
    ("place", "replaced"),
    [
        ("/work", A_FILE),
        ("/home/agent", A_FILE),
        ("/home/agent", "cd /; rm -rf {0} && ln -s /nowhere {0}"),
        ("/home/agent", "cd /; rm -rf {0} && ln -s {0} {0}"),
        ("/further/root", "rm -rf /further && touch /further"),
        ("/other", A_FILE),
    ],
)
async def test_a_folder_that_commands_have_replaced_is_refused_to_a_verifier(
    engine_elsewhere: str, place: str, replaced: str, tmp_path: Path, lease: str
) -> None:
    backend = relayed_backend(tmp_path)
    spec = SPEC.model_copy(update={"writable_roots": ("/further/root",), "aliases": {"/other": "/work"}})
    shell = Shell(await backend.create(lease, spec))
    assert (await shell.run(replaced.format(place))).code == 0
    with pytest.raises(WorkspaceRefused, match=place):
        await backend.open_verifier(lease, 0, {})
    await backend.destroy(lease)


async def test_an_image_without_room_for_a_folder_is_the_users_to_change(
    engine_elsewhere: str, tmp_path: Path, lease: str
) -> None:
    backend = relayed_backend(tmp_path)
    config = DockerConfig(image=IMAGE, workdir="/work", home="/etc/passwd/home")
    with pytest.raises(InvalidInput, match="/etc/passwd/home"):
        await backend.create(lease, SPEC.model_copy(update={"backend": config}))
