"""An engine that dies at each of its steps, and comes back: what was asked for is had at the next try, and once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from clotho.errors import SandboxUnavailable
from clotho.plugins.containers.backend import ContainerBackend
from clotho.sandbox.checkpoints import Checkpoint
from clotho.sandbox.supervised import launch
from tests.sandbox.dying_engine import DyingEngine, dying_engine
from tests.sandbox.late_start import starting_late
from tests.sandbox.shell import Shell
from tests.sandbox.test_containers import Made, containers, made, sdk, spec_of

__all__ = ["containers", "made", "sdk"]
Moment = Literal["before", "after"]


@pytest.fixture
def dying(engine: str, tmp_path: Path) -> Iterator[DyingEngine]:
    with dying_engine(tmp_path / "engine.sock", engine) as made:
        yield made


@pytest.fixture
def behind(dying: DyingEngine, folder: Path) -> ContainerBackend:
    """The same sandboxes as those of `containers`."""
    return ContainerBackend(folder / "containers", dying.address)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("request_line", ["/images/", "/containers/create", "/start"])
async def test_it_dies_while_a_sandbox_is_made(
    behind: ContainerBackend, dying: DyingEngine, made: Made, lease: str, request_line: str, when: Moment
) -> None:
    dying.die_at(request_line, when)
    with pytest.raises(SandboxUnavailable):
        await behind.create(lease, spec_of())
    assert dying.dead
    with pytest.raises(SandboxUnavailable):
        await behind.create(lease, spec_of())
    dying.dead = False
    assert await Shell(await behind.create(lease, spec_of())).text("cat from-the-image") == "1"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("request_line", ["/commit", "/containers/create", "/start"])
async def test_it_dies_while_a_verifier_is_made(
    behind: ContainerBackend, dying: DyingEngine, made: Made, lease: str, request_line: str, when: Moment
) -> None:
    shell = Shell(await behind.create(lease, spec_of()))
    await shell.run("echo here > file; echo there > /etc/there")
    dying.die_at(request_line, when)
    with pytest.raises(SandboxUnavailable):
        await behind.open_verifier(lease, 0, {"hidden": b"h"})
    assert dying.dead
    dying.dead = False
    verify = Shell(await behind.open_verifier(lease, 0, {"hidden": b"h"}))
    assert await verify.text("cat file /etc/there $CLOTHO_HIDDEN_FILES/hidden") == "here\nthere\nh"
    await behind.destroy(lease)
    await behind.reap()


async def test_a_verifier_that_starts_late_is_made_anew(
    behind: ContainerBackend, dying: DyingEngine, made: Made, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor comes up just before the next attempt ends it."""
    await behind.create(lease, spec_of())
    dying.die_at("/start", "before")
    with pytest.raises(SandboxUnavailable):
        await behind.open_verifier(lease, 0, {})
    dying.dead = False
    monkeypatch.setattr(launch, "end", starting_late(launch.end))
    assert await Shell(await behind.open_verifier(lease, 0, {})).text("echo anew") == "anew"
    await behind.destroy(lease)


async def test_it_dies_while_a_sandbox_is_destroyed(
    behind: ContainerBackend, dying: DyingEngine, made: Made, lease: str
) -> None:
    await behind.create(lease, spec_of())
    dying.die_at("/containers/", "after")
    with pytest.raises(SandboxUnavailable):
        await behind.destroy(lease)
    dying.dead = False
    await behind.destroy(lease)
    assert not behind.holds(lease)


async def test_commands_files_checkpoints_and_leases_need_no_engine(
    behind: ContainerBackend, dying: DyingEngine, made: Made, lease: str, tmp_path: Path
) -> None:
    shell = Shell(await behind.create(lease, spec_of()))
    dying.dead = True
    await shell.run("echo written > file")
    assert (await shell.sandbox.read_file("file", 99)).content == b"written\n"
    assert isinstance(await shell.sandbox.checkpoint(tmp_path / "blob"), Checkpoint)
    await behind.renew(lease, 600)
    again = await behind.create(lease, spec_of())
    assert again.incarnation == shell.sandbox.incarnation
    assert await Shell(await behind.attach(lease, again.incarnation)).text("cat file") == "written"
    with pytest.raises(SandboxUnavailable):
        await behind.open_verifier(lease, 0, {})
    dying.dead = False
    assert await Shell(await behind.open_verifier(lease, 0, {})).text("cat file") == "written"
