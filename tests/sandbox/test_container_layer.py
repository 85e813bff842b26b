"""What an agent wrote outside of its folders, as a verifier's container has to have it."""

from pathlib import Path

import pytest

from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.engine import Engine
from clotho.plugins.containers.folders import ContainerFolder
from clotho.plugins.containers.layer import written
from tests.sandbox.shell import Shell
from tests.sandbox.test_containers import Made, containers, made, sdk

__all__ = ["containers", "made", "sdk"]
CHANGES = {
    "made": "mkdir -p /opt/a/b && touch /opt/a/b/c",
    "changed": "echo more >> /etc/passwd",
    "deleted": "rm /etc/group",
    "mode": "chmod 600 /etc/group",
    "link": "ln -s /nowhere /etc/link",
    "deep": "cd /etc; for i in $(seq 200); do mkdir d && cd d || exit 1; done",
}


def layer_of(containers: ContainerBackend, lease: str) -> Path:
    layer = containers._engine.layer(ContainerFolder.of_lease(containers._root, lease).container)
    assert layer is not None
    return layer


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_is_seen_as_the_engine_sees_it(
    made: Made, containers: ContainerBackend, lease: str, change: str
) -> None:
    shell = await made()
    before = set(written(layer_of(containers, lease)))
    assert (await shell.run(CHANGES[change])).code == 0
    after = set(written(layer_of(containers, lease))) - before
    engine = containers._engine.changes(ContainerFolder.of_lease(containers._root, lease).container)
    assert after and {path for path in after if path != "/etc"} <= set(engine)


@pytest.mark.parametrize("told", [True, False])
async def test_an_image_is_kept_only_of_what_was_changed(
    made: Made, containers: ContainerBackend, lease: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the engine tells where the container's layer is, or has to compare it itself."""
    if not told:
        monkeypatch.setattr(Engine, "layer", lambda *_: None)
    folder = ContainerFolder.of_lease(containers._root, lease)
    shell = await made()
    await shell.run("touch x ~/x /tmp/x /run/x /dev/shm/x")
    await containers.open_verifier(lease, 0, {})
    assert not folder.left_mark.exists()


async def test_what_was_deleted_is_gone_for_the_verifier(
    made: Made, containers: ContainerBackend, lease: str
) -> None:
    shell = await made()
    await shell.run("rm /usr/bin/yes")
    verify = Shell(await containers.open_verifier(lease, 0, {}))
    assert (await verify.run("test -e /usr/bin/yes")).code == 1
