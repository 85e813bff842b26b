"""What is made, moved or made anew while a reaper looks is left alone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from clotho.sandbox.containers import leftovers
from clotho.sandbox.containers.engine import Engine
from clotho.sandbox.containers.folders import ContainerFolder, identity_of, members
from clotho.sandbox.containers.holdings import LABEL, Made
from clotho.sandbox.containers.leftovers import reap_leftovers
from clotho.sandbox.containers.machine import ContainerMachine
from clotho.sandbox.relay.backend import RelayedBackend
from clotho.sandbox.relay.instances import OF_THE_BACKEND
from clotho.sandbox.relay.machine import Found
from clotho.sandbox.relay.records import RelayFolder, scope
from tests.machine_image import IMAGE


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
        if self.begun is not None:
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
