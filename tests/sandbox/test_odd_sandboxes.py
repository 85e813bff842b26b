"""What the keeper of leases does about sandboxes and backends that nobody foresaw: it looks after the others."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import docker
import pytest

from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.holdings import LABEL, LEASE_LABEL
from clotho.plugins.containers.machine import ContainerMachine
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.instances import MADE_BY_RELAY, OF_THE_BACKEND
from clotho.plugins.containers.relay.records import RelayFolder
from clotho.sandbox import reaper
from clotho.sandbox.backend import LeaseRecord, SandboxSpec
from clotho.sandbox.backends import Backends
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.local.bubblewrap import View
from clotho.sandbox.local.folders import SandboxFolder
from clotho.sandbox.reaper import OwnerState, SandboxReaper
from clotho.sandbox.supervised import launch
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.verifying import expanded
from clotho.sandbox.verification import VerifierSetup
from tests.machine_image import IMAGE
from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import until_true
from tests.sandbox.test_reaper import LEASES, OURS, RENEWED, Told, backend, nobody_superseded, renewed, root
from tests.support import PATIENCE_SECONDS

__all__ = ["backend", "root"]

ODD_LABELS = (
    MADE_BY_RELAY,
    {**MADE_BY_RELAY, OF_THE_BACKEND: "another"},
    {LABEL: "another", LEASE_LABEL: "soon"},
    {LABEL: ""},
)


@pytest.fixture
def odd_containers(engine: str) -> Iterator[Sequence[str]]:
    """Containers that were never started, with labels as no backend writes them."""
    sdk = docker.DockerClient(base_url=engine, timeout=round(PATIENCE_SECONDS))
    made = [sdk.containers.create(IMAGE, ["true"], labels=labels) for labels in ODD_LABELS]
    yield [each.id for each in made]
    for each in made:
        each.remove()


@pytest.mark.attack("platforms", "containers with labels as no backend writes them, met by the reaper")
async def test_odd_containers_keep_no_others_from_being_reaped(
    engine: str, odd_containers: Sequence[str], folder: Path
) -> None:
    left = RelayFolder.of_lease(folder / "relayed-beside-odd", LEASES[0])
    left.create()
    relayed = RelayedBackend(left.root, ContainerMachine(engine, folder / "locks"))
    containers = ContainerBackend(folder / "containers-beside-odd", engine)
    (folder / "containers-beside-odd" / "sandboxes").mkdir(parents=True)
    await relayed.reap()
    await containers.reap()
    assert not left.files.exists()


class Odd(LocalBackend):
    """One that fails in ways of its own."""

    failing: frozenset[str] = frozenset()
    looks = 0

    async def leases(self) -> Sequence[LeaseRecord]:
        Odd.looks += 1
        if "leases" in self.failing:
            raise KeyError("clotho.ends")
        odd = LeaseRecord(lease="no lease of Clotho's", labels=None, expires=0.0)
        return (odd, *await super().leases())

    async def reap(self) -> Sequence[str]:
        if "reap" in self.failing:
            raise KeyError("clotho.ends")
        return await super().reap()

    async def renew(self, lease: str, seconds: float) -> None:
        if lease in self.failing:
            raise OSError("a folder that can't be read")
        await super().renew(lease, seconds)


@pytest.mark.attack("platforms", "a backend or sandbox that raises what nobody expects, in the reaper")
@needs_root
@pytest.mark.parametrize("failing", ["leases", "reap", LEASES[0]])
async def test_a_reaper_survives_whatever_one_backend_or_sandbox_raises(
    backend: LocalBackend, root: Path, folder: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "PERIOD_SECONDS", 0.02)
    odd = Odd(root)
    odd.failing, Odd.looks = frozenset({failing}), 0
    keeper = SandboxReaper(odd, Told(OwnerState.OPEN), nobody_superseded, OURS, RENEWED, lambda: [odd, odd])
    running = asyncio.create_task(keeper.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await until_true(lambda: Odd.looks > 2 or running.done())
            while failing != "leases" and await renewed(backend) != set(LEASES) - {failing}:
                assert not running.done()
                await asyncio.sleep(0.02)
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])


@needs_root
async def test_a_backend_whose_leases_are_not_known_costs_no_other_its_own(
    backend: LocalBackend, folder: Path
) -> None:
    odd = Odd(folder / "odd-beside")
    odd.failing = frozenset({"leases", "reap"})
    both = Backends(odd, [ContainerBackend(folder / "none", "unix:///nonexistent.sock")])
    both.own, both.beside = backend, (odd,)  # type: ignore[assignment]
    odd.holds = lambda lease: False  # type: ignore[method-assign]
    await SandboxReaper(both, Told(OwnerState.OPEN), nobody_superseded, OURS, RENEWED).look()
    assert await renewed(backend) == set(LEASES)


@needs_root
async def test_a_verifier_that_ends_just_then_costs_the_agent_no_lease(
    backend: LocalBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.open_verifier(LEASES[0], 0, {})
    verifier = SandboxFolder.of_lease(root, LEASES[0]).verifier_control(0)
    renew, ended = ControlDirectory.renew, []

    def renew_late(control: ControlDirectory, seconds: float) -> None:
        if control.path == verifier:
            launch.end(control)
            ended.append(control)
        renew(control, seconds)

    monkeypatch.setattr(ControlDirectory, "renew", renew_late)
    await backend.renew(LEASES[0], RENEWED)
    assert ended
    agents = ControlDirectory(SandboxFolder.of_lease(root, LEASES[0]).control(), None)
    expires = {held.lease: held.expires for held in await backend.leases()}
    assert expires[LEASES[0]] == agents.deadline()
    assert await renewed(backend) == {LEASES[0]}


@pytest.mark.parametrize("isolated", [True, False])
def test_a_variable_within_a_variable_is_read_alike_everywhere(folder: Path, isolated: bool) -> None:
    """As a shell reads it: the value of a variable is taken as it is."""

    spec = SandboxSpec(variables={"OUTER": "$INNER/x", "INNER": "/tmp/y"})
    setup = VerifierSetup(directory="$OUTER/z")
    view = View(SandboxFolder(folder, "any"), spec, None, setup)
    assert view.directory(isolated) == expanded("$OUTER/z", view.environment(isolated)) == "$INNER/x/z"
