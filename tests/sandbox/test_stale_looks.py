"""What is made, moved or made anew while a reaper looks is left alone."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from clotho.errors import SandboxUnavailable
from clotho.plugins.containers import leftovers
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.engine import Engine
from clotho.plugins.containers.folders import ContainerFolder, members
from clotho.plugins.containers.holdings import LABEL, Made
from clotho.plugins.containers.leftovers import reap_leftovers
from clotho.plugins.containers.machine import ContainerMachine
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.instances import ENDS, MADE_BY_RELAY, OF_THE_BACKEND
from clotho.plugins.containers.relay.machine import Found
from clotho.plugins.containers.relay.records import RelayFolder, scope
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.supervised.folders import identity_of
from tests.machine_image import IMAGE
from tests.sandbox.engine_elsewhere import LikeACloud


def create(engine: Engine, name: str, labels: Mapping[str, str]) -> str:
    """A container that isn't started."""
    return str(engine.client.containers.create(IMAGE, ["sleep", "600"], name=name, labels=dict(labels)).id)


def has(engine: Engine, identity: str) -> bool:
    return any(each.id == identity for each in engine.client.containers.list(all=True))


# ---- containers with folders here ----


class MadeAnew(Engine):
    """One on which, after a look, a container is removed, and made anew by the same name."""

    name = ""
    again = ""

    def left_images(self) -> Sequence[Made]:
        self.remove(self.name)
        made = self.client.containers.run(IMAGE, ["sleep", "600"], name=self.name, detach=True)
        self.again = str(made.id)
        return super().left_images()


def test_a_sandbox_that_is_made_anew_while_leftovers_are_looked_for_goes_on(
    engine: str, tmp_path: Path
) -> None:
    anew = MadeAnew(engine)
    anew.name = ContainerFolder.of_lease(tmp_path, "anew/r0/lease/0").container
    create(anew, anew.name, {LABEL: identity_of(tmp_path)})
    try:
        reap_leftovers(tmp_path, anew)
        assert anew.client.containers.get(anew.name).id == anew.again
    finally:
        anew.remove(anew.name)


def test_a_container_is_known_while_it_moves_into_the_pool(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Engine(engine)
    folder = ContainerFolder(tmp_path, "0" * 20)
    member = ContainerFolder(tmp_path, folder.name, "pool/kind")
    folder.files.mkdir(parents=True)
    member.files.parent.mkdir(parents=True)

    def while_it_moves(root: Path) -> Iterator[ContainerFolder]:
        found = list(members(root))
        if folder.files.exists():
            folder.files.rename(member.files)
        return iter(found)

    monkeypatch.setattr(leftovers, "members", while_it_moves)
    made = create(opened, folder.container, {LABEL: identity_of(tmp_path)})
    try:
        assert reap_leftovers(tmp_path, opened) == []
        assert has(opened, made)
    finally:
        opened.remove(folder.container)


# ---- machines elsewhere ----


class BegunMeanwhile(ContainerMachine):
    """One on which the machine of a folder is made while another process looks."""

    begun: RelayFolder | None = None

    def _list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        if self.begun is not None and not self.begun.files.exists():
            self.begun.create()
            create(self._engine, self.begun.machine, labels)
        return super()._list(labels)


@pytest.fixture
def machine(engine_elsewhere: str, tmp_path: Path) -> BegunMeanwhile:
    return BegunMeanwhile(engine_elsewhere, tmp_path / "locks")


async def test_a_machine_that_is_begun_while_others_are_looked_for_goes_on(
    machine: BegunMeanwhile, tmp_path: Path
) -> None:
    backend = RelayedBackend(tmp_path, machine)
    (tmp_path / "sandboxes").mkdir()
    machine.begun = RelayFolder.of_lease(tmp_path, "begun/r0/lease/0")
    try:
        assert await backend.reap() == ()
        assert await machine.find(machine.begun.machine) is not None
    finally:
        await machine.destroy(machine.begun.machine)


async def test_a_machine_is_left_to_whoever_makes_or_ends_its_sandbox(
    machine: BegunMeanwhile, tmp_path: Path
) -> None:
    backend = RelayedBackend(tmp_path, machine)
    (tmp_path / "sandboxes").mkdir()
    folder = RelayFolder.of_lease(tmp_path, "locked/r0/lease/0")
    verifiers = f"{folder.machine}-v0"
    create(machine._engine, verifiers, {OF_THE_BACKEND: scope(tmp_path)})
    try:
        with folder.locked():
            assert await backend.reap() == ()
        assert await backend.reap() == (verifiers,)
        assert await machine.find(verifiers) is None
    finally:
        await machine.destroy(verifiers)


async def test_ended_machines_of_another_backend_are_reaped_once_their_lease_is_over(
    machine: BegunMeanwhile, tmp_path: Path
) -> None:
    """Its host may be gone, with the folders that told of them."""
    backend = RelayedBackend(tmp_path, machine)
    (tmp_path / "sandboxes").mkdir()
    left, kept = f"clotho-0thers00-{'0' * 20}", f"clotho-0thers00-{'1' * 20}"
    labels = {**MADE_BY_RELAY, OF_THE_BACKEND: "0thers00"}
    create(machine._engine, left, {**labels, ENDS: str(round(time.time()) - 10)})
    create(machine._engine, kept, {**labels, ENDS: str(round(time.time()) + 1000)})
    try:
        assert await backend.reap() == (left,)
        assert await machine.find(kept) is not None
    finally:
        await machine.destroy(left)
        await machine.destroy(kept)


def test_a_backend_has_its_machines_also_where_its_folder_is_found_elsewhere(tmp_path: Path) -> None:
    """As in a worker's pod that has taken the place of another."""
    before = RelayFolder.of_lease(tmp_path / "before", "moved/r0/lease/0").machine
    (tmp_path / "before").rename(tmp_path / "after")
    assert RelayFolder.of_lease(tmp_path / "after", "moved/r0/lease/0").machine == before


class Dying(LikeACloud):
    """One on which a verifier's machine has just been made when the worker dies."""

    dead = False

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        if name.endswith("-v0"):
            self.dead = True
        await self._alive()
        await super().put(name, files)

    async def destroy(self, name: str) -> None:
        await self._alive()
        await super().destroy(name)

    async def _alive(self) -> None:
        if self.dead:
            raise SandboxUnavailable("the worker has died")


async def test_a_verifiers_machine_whose_worker_died_ends_with_its_sandbox(
    engine_elsewhere: str, tmp_path: Path, lease: str
) -> None:
    spec = SandboxSpec(backend=DockerConfig(image=IMAGE, workdir="/work"), disk_mb=200, memory_mb=512)
    machine = LikeACloud(engine_elsewhere, tmp_path / "locks")
    dying = RelayedBackend(tmp_path, Dying(engine_elsewhere, tmp_path / "locks"))
    await dying.create(lease, spec)
    with pytest.raises(SandboxUnavailable, match="the worker has died"):
        await dying.open_verifier(lease, 0, {})
    verifiers = f"{RelayFolder.of_lease(tmp_path, lease).machine}-v0"
    assert await machine.find(verifiers) is not None
    await RelayedBackend(tmp_path, machine).destroy(lease)
    assert await machine.find(verifiers) is None
