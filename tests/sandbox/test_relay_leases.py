"""Renewals of leases elsewhere take a bounded time and threads of their own, and what is opened is closed."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clotho.errors import InvalidInput, SandboxLost, SandboxUnavailable
from clotho.plugins.clouds.accounts import ModalAccount
from clotho.plugins.clouds.opened import ImportedMachines
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.control import RelayedControl
from clotho.plugins.containers.relay.instances import drawn
from clotho.plugins.containers.relay.loop import blocking
from clotho.plugins.containers.relay.machine import Base, Channel
from clotho.plugins.containers.relay.reconnecting import TRIES, Relay
from clotho.plugins.containers.relay.records import RelayFolder
from clotho.plugins.containers.relay.stream import ANSWER_SECONDS, MAGIC, RelayStream, StreamEnded
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.backends import Backends
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.threads import with_sandbox
from tests.machine_image import IMAGE
from tests.sandbox.engine_elsewhere import LikeACloud
from tests.sandbox.shell import Shell, until_true
from tests.support import PATIENCE_SECONDS

IMPORTLIB = "clotho.plugins.clouds.opened.importlib"
SPEC = SandboxSpec(backend=DockerConfig(image=IMAGE, workdir="/work"), disk_mb=200, memory_mb=512)


class Faulty(LikeACloud):
    """Machines of which one isn't reached, or all hang."""

    unreached = "none"
    hanging = "nothing"

    async def open(self, name: str, argv: Sequence[str]) -> Channel:  # type: ignore[override]
        if self.hanging == "open":
            await asyncio.Event().wait()
        if name.endswith(self.unreached):
            raise SandboxUnavailable("as the test wants it")
        return await super().open(name, argv)

    async def extend(self, name: str, lifetime_seconds: float) -> None:
        if self.hanging == "extend":
            await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that takes its time is taken for no failure."""
    monkeypatch.setattr("clotho.plugins.containers.relay.loop.RENEW_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def machine(engine_elsewhere: str, tmp_path: Path) -> Faulty:
    return Faulty(engine_elsewhere, tmp_path / "locks")


@pytest.fixture
async def backend(machine: Faulty, tmp_path: Path, lease: str) -> AsyncIterator[RelayedBackend]:
    made = RelayedBackend(tmp_path, machine)
    yield made
    await made.destroy(lease)


def control_of(shell: Shell) -> RelayedControl:
    control = shell.sandbox.control
    assert isinstance(control, RelayedControl)
    return control


def stream_of(shell: Shell) -> RelayStream:
    return blocking(control_of(shell).relay.stream())


@pytest.mark.parametrize("step", ["open", "extend"])
async def test_a_platform_that_hangs_holds_a_renewal_up_for_its_time_alone(
    backend: RelayedBackend, machine: Faulty, monkeypatch: pytest.MonkeyPatch, lease: str, step: str
) -> None:
    shell = Shell(await backend.create(lease, SPEC))
    blocking(control_of(shell).relay.close())
    monkeypatch.setattr("clotho.plugins.containers.relay.loop.RENEW_SECONDS", 0.2)
    machine.hanging = step
    with pytest.raises(SandboxUnavailable, match="takes more than"):
        await backend.renew(lease, 60)
    machine.hanging = "nothing"


async def test_a_verifier_that_is_not_reached_costs_no_agent_its_lease(
    backend: RelayedBackend, machine: Faulty, tmp_path: Path, lease: str
) -> None:
    await backend.create(lease, SPEC)
    folder = RelayFolder.of_lease(tmp_path, lease)
    record = folder.read_record()
    assert record is not None
    verifier = drawn(f"{folder.machine}-v0")
    folder.write_record(record.model_copy(update={"verifiers": {0: verifier}}))
    machine.unreached = "-v0"
    before = folder.expiry()
    with pytest.raises(SandboxUnavailable):
        await backend.renew(lease, 50_000)
    assert folder.expiry() > before + 40_000


async def test_renewals_wait_for_no_creations(backend: RelayedBackend, lease: str) -> None:
    await backend.create(lease, SPEC)
    ends = threading.Event()
    slow = [asyncio.create_task(with_sandbox(f"slow {n}", ends.wait)) for n in range(64)]
    try:
        await asyncio.wait_for(backend.renew(lease, 60), PATIENCE_SECONDS)
        assert lease in {held.lease for held in await backend.leases()}
        assert not any(each.done() for each in slow)
    finally:
        ends.set()
        await asyncio.gather(*slow)


class Slow(LikeACloud):
    """Machines that are made until the test lets that end."""

    def __init__(self, address: str, locks: Path) -> None:
        super().__init__(address, locks)
        self.making, self.made = threading.Event(), threading.Event()

    async def create(self, *arguments: Any, **named: Any) -> None:
        self.making.set()
        await asyncio.to_thread(self.made.wait)
        await super().create(*arguments, **named)


class Pulling(LikeACloud):
    """Machines of an image that is pulled until the test lets that end, and isn't there."""

    def __init__(self, address: str, locks: Path) -> None:
        super().__init__(address, locks)
        self.pulled, self.pulls = threading.Event(), 0

    async def base(self, spec: SandboxSpec) -> Base:
        self.pulls += 1
        await asyncio.to_thread(self.pulled.wait)
        raise InvalidInput("there is no such image")


async def test_sandboxes_that_wait_for_an_image_hold_up_no_other(
    engine_elsewhere: str, tmp_path: Path
) -> None:
    machine = Pulling(engine_elsewhere, tmp_path / "locks")
    backend = RelayedBackend(tmp_path, machine)
    waiting = [asyncio.create_task(backend.create(f"slow/r{n}/lease/0", SPEC)) for n in range(100)]
    try:
        await until_true(lambda: machine.pulls > 0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await backend.destroy("other/r0/lease/0")
        assert machine.pulls == 1, "a hundred rollouts pull it once"
    finally:
        machine.pulled.set()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in ended} == {InvalidInput}
    assert await backend.leases() == ()


async def test_nothing_is_left_of_a_sandbox_that_is_destroyed_while_it_is_made(
    engine_elsewhere: str, tmp_path: Path, lease: str
) -> None:
    machine = Slow(engine_elsewhere, tmp_path / "locks")
    backend, folder = RelayedBackend(tmp_path, machine), RelayFolder.of_lease(tmp_path, lease)
    making = asyncio.create_task(backend.create(lease, SPEC))
    await asyncio.to_thread(machine.making.wait)
    [held] = (tmp_path / "locks").glob("????")
    destroying = asyncio.create_task(backend.destroy(lease))
    await until_true(lambda: destroying.done() or is_awaited(held))
    machine.made.set()
    await asyncio.gather(making, destroying)
    assert await backend.leases() == ()
    assert await machine.find(folder.machine) is None


def is_awaited(lock: Path) -> bool:
    inode = f":{lock.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


class Ending:
    """A channel whose relay greets, and ends with the first request after that."""

    def __init__(self) -> None:
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()
        self._answers = [MAGIC]

    async def send(self, content: bytes) -> None:
        await self._sent.put(content)

    async def receive(self) -> bytes:
        if self._answers:
            return self._answers.pop()
        asked = await self._sent.get()
        return asked[:3] + b"\x09" + asked[4:12] + b"\0" if asked[12:13] == b"H" else b""

    async def close(self) -> None:
        return None


@pytest.mark.parametrize(("seconds", "streams"), [(1e9, TRIES), (-1.0, 1)])
async def test_streams_that_end_are_replaced_for_a_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, streams: int
) -> None:
    monkeypatch.setattr("clotho.plugins.containers.relay.reconnecting.TRIES_SECONDS", seconds)
    made: list[Channel] = []

    async def opener() -> Channel:
        made.append(Ending())
        return made[-1]

    with pytest.raises(SandboxLost, match="again and again"):
        await Relay(opener, "0" * 32).ask("A")
    assert len(made) == streams


async def test_a_host_that_stalls_for_two_minutes_is_not_taken_for_a_lost_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each stream greets, and then times out."""
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("clotho.plugins.containers.relay.reconnecting.time", clock)

    async def opener() -> Channel:
        return Ending()

    async def ask(stream: RelayStream) -> str:
        nonlocal now
        now += ANSWER_SECONDS + 1
        await stream.close()
        if now < 3 * ANSWER_SECONDS:
            raise StreamEnded("a sandbox's relay doesn't answer")
        return "an answer"

    assert await Relay(opener, "0" * 32).steps(ask) == "an answer"


async def test_a_relay_that_does_not_open_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clotho.plugins.containers.relay.reconnecting.OPENING_SECONDS", 0.05)

    async def opener() -> Channel:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(SandboxUnavailable, match="opening a relay"):
        await Relay(opener, "0" * 32).ask("A")


async def test_nothing_is_kept_of_requests_that_are_over(backend: RelayedBackend, lease: str) -> None:
    shell = Shell(await backend.create(lease, SPEC))
    for _ in range(5):
        await shell.run("true")
    stream = stream_of(shell)
    await until_true(lambda: not stream._pending)


async def test_what_is_closed_is_opened_again(
    backend: RelayedBackend, tmp_path: Path, engine: str, lease: str
) -> None:
    shell = Shell(await backend.create(lease, SPEC))
    stream = stream_of(shell)
    every = Backends(LocalBackend(tmp_path / "own"), [ContainerBackend(tmp_path / "here", engine), backend])
    await every.close()
    assert not stream.is_open
    with pytest.raises(StreamEnded):
        blocking(stream.ask("A"))
    assert (await backend.attach(lease, shell.sandbox.incarnation)).incarnation == shell.sandbox.incarnation


async def test_streams_to_what_another_process_has_ended_are_closed(
    backend: RelayedBackend, machine: Faulty, tmp_path: Path, lease: str
) -> None:
    stream = stream_of(Shell(await backend.create(lease, SPEC)))
    await RelayedBackend(tmp_path, machine).destroy(lease)
    await backend.reap()
    assert not stream.is_open
    assert not backend._instances._controls


# ---- the clouds' packages ----


def test_the_machines_of_a_cloud_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)
    made: list[object] = []

    class Machines:
        max_lifetime_seconds = 60.0

        def __init__(self, account: ModalAccount) -> None:
            made.append(account)

    def imported(name: str) -> object:
        """Waits for another that imports at the same time, which there must not be."""
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return type("module", (), {"ModalMachines": Machines})

    monkeypatch.setattr(IMPORTLIB, SimpleNamespace(import_module=imported))
    machines = ImportedMachines("modal", ModalAccount())
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(lambda: machines.max_lifetime_seconds) for _ in range(2)]
        assert [each.result() for each in asked] == [60.0, 60.0]
    assert len(made) == 1


async def test_nothing_is_imported_to_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IMPORTLIB, SimpleNamespace(import_module=pytest.fail))
    await ImportedMachines("modal", ModalAccount()).close()
