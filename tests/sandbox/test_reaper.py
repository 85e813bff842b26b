"""The host's keeper of leases: an outage costs no sandbox, and one that is broken costs no other."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.config import SandboxSettings
from clotho.errors import InvalidInput, JournalCorrupt, Unavailable
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.folders import ContainerFolder
from clotho.plugins.containers.machine import ContainerMachine
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.records import RelayFolder
from clotho.sandbox import reaper
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.backends import Backends
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.local.folders import SandboxFolder
from clotho.sandbox.reaper import OwnerState, SandboxReaper
from clotho.sandbox.registry import BackendsBeside
from clotho.sandbox.supervised.folders import GRACE_SECONDS
from tests.sandbox.conftest import SPECS, needs_root
from tests.sandbox.fake_engine import ServedEngine
from tests.sandbox.shell import until_true
from tests.support import PATIENCE_SECONDS

SPEC = SandboxSpec(disk_mb=200, memory_mb=512, lease_seconds=600)
RENEWED = 3_600.0
LEASES = ("a/g0/r0/lease/0", "a/g0/r1/lease/0")
OURS = Labels(store="store", cluster="localhost:7233", namespace="default", rollout="a/g0/r0")
ELSEWHERE = (
    OURS.model_copy(update={"namespace": "another"}),
    OURS.model_copy(update={"cluster": "localhost:7234"}),
)


async def nobody_superseded(rollout: str, number: int) -> bool:
    return False


class Told:
    """Owners in a state that everybody knows, or, with None, that nobody can tell."""

    def __init__(self, state: OwnerState | None) -> None:
        self._state = state

    async def state(self, rollout: str) -> OwnerState:
        if self._state is None:
            raise Unavailable("the server is away")
        return self._state


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that takes its time is taken for no failure."""
    monkeypatch.setattr(reaper, "RENEW_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(reaper, "ANSWER_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def root(folder: Path) -> Path:
    return folder / "sandboxes-kept"


@pytest.fixture
async def backend(root: Path) -> AsyncIterator[LocalBackend]:
    backend = LocalBackend(root)
    for lease in LEASES:
        await backend.create(lease, SPEC, OURS)
    yield backend
    for lease in LEASES:
        await backend.destroy(lease)


async def renewed(backend: LocalBackend) -> set[str]:
    return {held.lease for held in await backend.leases() if held.expires > time.time() + RENEWED / 2}


@needs_root
@pytest.mark.parametrize("state", [OwnerState.OPEN, None])
async def test_leases_are_renewed_while_owners_are_open_or_nobody_can_tell(
    backend: LocalBackend, state: OwnerState | None
) -> None:
    await SandboxReaper(backend, Told(state), nobody_superseded, OURS, RENEWED).look()
    assert await renewed(backend) == set(LEASES)


@needs_root
@pytest.mark.parametrize("broken", LEASES)
async def test_a_broken_sandbox_keeps_no_other_from_being_renewed(
    backend: LocalBackend, broken: str, root: Path
) -> None:
    sandbox = SandboxFolder.of_lease(root, broken)
    subprocess.run(["umount", "--lazy", sandbox.controls], check=True)
    sandbox.control_image.write_bytes(b"")
    await SandboxReaper(backend, Told(OwnerState.OPEN), nobody_superseded, OURS, RENEWED).look()
    assert set(LEASES) - {broken} <= await renewed(backend)


@needs_root
@pytest.mark.parametrize("has_had_some", [False, True])
async def test_an_engine_named_wrongly_costs_no_sandbox(
    backend: LocalBackend, root: Path, has_had_some: bool
) -> None:
    containers = ContainerBackend(root / "containers", "tcp://192.0.2.1:2375")
    lease = "b/g0/r0/lease/0"
    with pytest.raises(InvalidInput, match="another machine"):
        await containers.create(lease, SandboxSpec(backend=DockerConfig(image="none")))
    if has_had_some:  # before the settings named this engine
        left = ContainerFolder.of_lease(containers._root, lease)
        left.files.mkdir(parents=True)
    both = Backends(backend, containers)
    await SandboxReaper(
        both, Told(OwnerState.OPEN), nobody_superseded, OURS, RENEWED, lambda: [containers]
    ).look()
    assert await renewed(backend) == set(LEASES)


@needs_root
async def test_sandboxes_of_a_store_without_workers_go_once_they_have_expired(folder: Path) -> None:
    host = folder / "host"
    served, left_behind = LocalBackend(host / "served"), LocalBackend(host / "left-behind")
    for lease in LEASES:
        await left_behind.create(lease, SPEC)
    expired, alive = (SandboxFolder.of_lease(host / "left-behind", lease) for lease in LEASES)
    past = time.time() - GRACE_SECONDS - 1
    for path in (expired.files, *(each / "deadline" for each in expired.control_directories())):
        os.utime(path, (past, past))
    others = BackendsBeside(SandboxSettings(), host / "served")
    await SandboxReaper(served, Told(OwnerState.OPEN), nobody_superseded, OURS, RENEWED, others).look()
    assert [held.lease for held in await left_behind.leases()] == [LEASES[1]]
    assert str(expired.files) not in Path("/proc/mounts").read_text()
    assert str(alive.files) in Path("/proc/mounts").read_text()
    assert not await renewed(left_behind), "only its own workers keep it"
    await left_behind.destroy(LEASES[1])


def test_the_backends_of_other_stores_are_opened_once(folder: Path) -> None:
    beside = BackendsBeside(SandboxSettings(), folder / "stores" / "served")
    for name in ("served", "first", "second"):
        (folder / "stores" / name).mkdir(parents=True)
    opened = beside()
    assert len(opened) == 2
    assert {id(each) for each in beside()} == {id(each) for each in opened}
    (folder / "stores" / "first").rmdir()
    assert len(beside()) == 1


class Stuck(LocalBackend):
    """Some of its leases can't be renewed: what runs in their sandboxes keeps these from answering."""

    stuck: frozenset[str] = frozenset()

    async def renew(self, lease: str, seconds: float) -> None:
        if lease in self.stuck:
            await asyncio.get_running_loop().create_future()
        await super().renew(lease, seconds)


@needs_root
@pytest.mark.parametrize("stuck", LEASES)
async def test_a_sandbox_that_never_answers_costs_no_other_its_lease(
    backend: LocalBackend, root: Path, stuck: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_stuck = Stuck(root)
    some_stuck.stuck = frozenset({stuck})
    kept = SandboxReaper(some_stuck, Told(OwnerState.OPEN), nobody_superseded, OURS, RENEWED)
    looking = asyncio.create_task(kept.look())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await renewed(backend) != set(LEASES) - {stuck}:
                await asyncio.sleep(0.02)
        assert not looking.done(), "it is still waited for"
    finally:
        looking.cancel()
        await asyncio.wait([looking])
    monkeypatch.setattr(reaper, "RENEW_SECONDS", 0.05)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await kept.look()


@needs_root
async def test_a_damaged_entry_of_one_rollout_costs_no_other_its_lease(backend: LocalBackend) -> None:
    async def damaged(rollout: str, number: int) -> bool:
        if rollout == "a/g0/r0":
            raise JournalCorrupt(f"{rollout}/lease")
        return False

    await SandboxReaper(backend, Told(OwnerState.OPEN), damaged, OURS, RENEWED).look()
    assert await renewed(backend) == {LEASES[1]}
    assert {held.lease for held in await backend.leases()} == set(LEASES)


async def test_an_engine_that_is_away_keeps_no_other_backend_from_reaping(
    folder: Path, served: ServedEngine
) -> None:
    left = [RelayFolder.of_lease(folder / name, LEASES[0]) for name in ("away", "beside")]
    for each in left:
        each.create()
    away, beside = (
        RelayedBackend(each.root, ContainerMachine(f"unix://{address!s}", folder / "locks"))
        for each, address in zip(left, ("/nonexistent.sock", served.server_address), strict=True)
    )
    containers = ContainerBackend(folder / "containers-away", "unix:///nonexistent.sock")
    (folder / "containers-away" / "sandboxes").mkdir(parents=True)
    await Backends(away, containers, [beside]).reap()
    assert [each.files.exists() for each in left] == [True, False]
    assert await containers.reap() == ()


@needs_root
@pytest.mark.parametrize(("state", "left"), [(OwnerState.CLOSED, set()), (OwnerState.UNKNOWN, set(LEASES))])
async def test_only_what_is_known_to_be_closed_is_destroyed(
    backend: LocalBackend, state: OwnerState, left: set[str]
) -> None:
    await SandboxReaper(backend, Told(state), nobody_superseded, OURS, RENEWED).look()
    assert {held.lease for held in await backend.leases()} == left
    assert await renewed(backend) == set()


@needs_root
@pytest.mark.parametrize("labels", ELSEWHERE)
async def test_what_another_namespace_runs_is_not_destroyed_for_having_closed_here(
    folder: Path, labels: Labels
) -> None:
    backend = LocalBackend(folder / "sandboxes-of-two")
    made = await backend.create(LEASES[0], SPEC, labels)
    try:
        closed = SandboxReaper(backend, Told(OwnerState.CLOSED), nobody_superseded, OURS, RENEWED)
        await closed.look()
        assert [held.lease for held in await backend.leases()] == [LEASES[0]]
        assert await renewed(backend) == set()
        await SandboxReaper(backend, Told(OwnerState.OPEN), nobody_superseded, OURS, RENEWED).look()
        assert await renewed(backend) == {LEASES[0]}, "renewing harms nobody"
        await backend.attach(LEASES[0], made.incarnation, OURS)
        await closed.look()
        assert await backend.leases() == (), "the rollout had gone on here, and has closed"
    finally:
        await backend.destroy(LEASES[0])


@needs_root
async def test_a_sandbox_whose_lease_another_followed_goes_whichever_namespace_had_it(folder: Path) -> None:
    async def followed(rollout: str, number: int) -> bool:
        return True

    backend = LocalBackend(folder / "sandboxes-followed")
    await backend.create(LEASES[0], SPEC, ELSEWHERE[0])
    await SandboxReaper(backend, Told(OwnerState.OPEN), followed, OURS, RENEWED).look()
    assert await backend.leases() == ()


@needs_root
async def test_leases_are_renewed_while_an_engine_takes_its_time_to_remove_containers(
    served: ServedEngine, local: LocalBackend, lease: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder / "removed-slowly"
    containers = ContainerBackend(root, f"unix://{served.server_address!s}")
    left = ContainerFolder.of_lease(root, "left/r0/lease/0")
    left.control().mkdir(parents=True)
    monkeypatch.setattr(reaper, "PERIOD_SECONDS", 0.02)
    await local.create(lease, SPECS["local"], OURS)
    deadline = SandboxFolder.of_lease(local._root, lease).control() / "deadline"
    served.answers.clear()
    keeper = SandboxReaper(
        Backends(local, containers), Told(OwnerState.OPEN), nobody_superseded, OURS, RENEWED
    )
    running = asyncio.create_task(keeper.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await until_true(lambda: bool(served.slow_requests))
            for _ in range(2):
                soon = time.time() + 100
                os.utime(deadline, (soon, soon))
                await until_true(lambda: deadline.stat().st_mtime > time.time() + 200)
            assert left.files.exists()
            served.answers.set()
            await until_true(lambda: not left.files.exists())
    finally:
        running.cancel()
        await asyncio.wait([running])
        await local.destroy(lease)
