"""Heartbeats in the store: their age goes by its clock, whatever a host takes the time to be."""

import asyncio
import os
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from clotho.config import read_settings_file
from clotho.errors import InvalidInput
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.journal.store import Written
from clotho.processes import heartbeats, liveness
from clotho.processes.heartbeats import Heartbeats
from clotho.processes.liveness import (
    IDLE_PERIOD_SECONDS,
    KEPT_HEARTBEATS,
    LIVENESS_SECONDS,
    PERIOD_SECONDS,
    Liveness,
    Presence,
    ServedNamespace,
    heartbeat_age,
    last_signs,
)
from clotho.runs.starting import settings_notice

HOST = "host"


class SetClock:
    """The clocks of one host, in place of the module `time`."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead

    def clock_gettime(self, clock: int) -> float:
        return time.clock_gettime(clock) + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    clock = SetClock()
    monkeypatch.setattr(liveness, "time", clock)
    return clock


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(FilesystemStore(tmp_path))


def let_pass(store: Path, seconds: float) -> None:
    """Have the store's files be older."""
    for file in (store / "~present").rglob("*"):
        os.utime(file, (file.stat().st_mtime - seconds,) * 2)


@pytest.mark.parametrize("ahead", [-600.0, -31.0, 0.0, 600.0])
async def test_a_host_is_present_and_silent_whatever_its_clock_says(
    journal: Journal, tmp_path: Path, clock: SetClock, ahead: float
) -> None:
    clock.ahead = ahead
    await Liveness(journal, HOST).beat()
    clock.ahead = 0.0
    assert await heartbeat_age(journal, HOST) < LIVENESS_SECONDS
    signs = await last_signs(journal)
    assert signs.keys() == {HOST}
    assert signs[HOST].age == pytest.approx(await heartbeat_age(journal, HOST), abs=5)
    let_pass(tmp_path, LIVENESS_SECONDS + 1)
    assert await heartbeat_age(journal, HOST) >= LIVENESS_SECONDS


async def test_a_host_whose_clock_is_set_back_stays_present(
    journal: Journal, tmp_path: Path, clock: SetClock
) -> None:
    clock.ahead = 600.0
    for _ in range(2):
        await Liveness(journal, HOST).beat()
    clock.ahead = 0.0
    let_pass(tmp_path, LIVENESS_SECONDS + 1)
    await Liveness(journal, HOST).beat()
    assert await heartbeat_age(journal, HOST) < LIVENESS_SECONDS
    assert len(await journal.keys(f"~present/{HOST}/")) == 2


async def test_settings_that_living_workers_read_otherwise_are_named(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "clotho.yaml"
    file.write_text("worker: {drain_seconds: 60, activity_pollers: 3}\nrun: {memory_mb: 512}\n")
    read = read_settings_file()
    assert "60" not in read.digests.values()
    await Liveness(journal, HOST, read).beat()
    await Liveness(journal, "adapter").beat()
    assert await settings_notice(journal) is None
    file.write_text(
        "worker: {activity_pollers: 4}\nplugins: {s3: {endpoint: http://s3}}\nrun: {memory_mb: 1024}\n"
    )
    changed = "plugins.s3.endpoint, worker.activity_pollers, worker.drain_seconds"
    told = f"the workers have older settings than clotho.yaml ({changed}): start them again"
    assert await settings_notice(journal) == told
    monkeypatch.chdir("/")
    assert await settings_notice(journal) is None, "the workers read another file"
    monkeypatch.chdir(tmp_path)
    await Liveness(journal, HOST, read_settings_file()).beat()
    assert await settings_notice(journal) is None
    file.unlink()
    assert (await settings_notice(journal) or "").startswith("the workers have older settings")
    let_pass(tmp_path, LIVENESS_SECONDS + 1)
    assert await settings_notice(journal) is None, "they are gone"


class Server:
    """Ids of the namespaces of one Temporal server."""

    def __init__(self, **ids: str) -> None:
        self.ids: dict[str, str | None] = {**ids}

    def namespace(self, name: str) -> ServedNamespace:
        async def look_up() -> str | None:
            return self.ids[name]

        return ServedNamespace(name, look_up)


async def test_a_process_that_serves_another_namespace_only_takes_no_work(
    journal: Journal, tmp_path: Path
) -> None:
    server = Server(one="id-one", other="id-other")
    one, other = (Presence(journal, server.namespace(name)) for name in ("one", "other"))
    processes = [Liveness(journal, HOST, namespace=server.namespace(name)) for name in ("one", "other")]
    await processes[0].beat()
    assert await one.serves(HOST) and not await other.serves(HOST)
    for _ in range(3):  # a host's queue is served by several processes
        await processes[1].beat()
        assert await one.serves(HOST) and await other.serves(HOST)
    let_pass(tmp_path, LIVENESS_SECONDS + 1)
    assert not await one.serves(HOST) and not await other.serves(HOST)


async def test_processes_of_a_namespace_that_was_made_again_find_each_other(journal: Journal) -> None:
    """Its id is another one, which they learn one after the other."""
    server = Server(default="before")
    process, reader = server.namespace("default"), Presence(journal, server.namespace("default"))
    liveness = Liveness(journal, HOST, namespace=process)
    await liveness.beat()
    assert await reader.serves(HOST)
    server.ids["default"] = None  # the server is away
    assert await reader.serves(HOST) and await process.refresh() == "before"
    server.ids["default"] = "after"
    started_anew = Presence(journal, server.namespace("default"))
    assert await reader.serves(HOST) and await started_anew.serves(HOST)
    await liveness.beat()
    assert await reader.serves(HOST) and await started_anew.serves(HOST)


async def test_a_process_at_another_server_takes_no_work_for_a_namespace_of_the_same_name(
    journal: Journal, tmp_path: Path, clock: SetClock
) -> None:
    there = Liveness(journal, HOST, namespace=Server(default="there").namespace("default"))
    here = Presence(journal, Server(default="here").namespace("default"))
    await there.beat()
    assert await here.serves(HOST), "it may not have learned yet that the namespace was made again"
    clock.ahead = LIVENESS_SECONDS
    await there.beat()
    assert not await here.serves(HOST)


async def test_a_process_that_cannot_tell_its_namespace_counts_as_serving_it(journal: Journal) -> None:
    away = Server()
    away.ids["one"] = away.ids["other"] = None
    known = Server(one="id-one", other="id-other")
    await Liveness(journal, HOST, namespace=away.namespace("one")).beat()
    assert await Presence(journal, known.namespace("one")).serves(HOST)
    assert not await Presence(journal, known.namespace("other")).serves(HOST)
    assert await Presence(journal, away.namespace("one")).serves(HOST)


class Passing:
    """A clock, and pauses that pass at once."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self._end = seconds

    def seconds(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self._end:
            raise asyncio.CancelledError


class CountingStore(FilesystemStore):
    """Counts requests by their kind."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.requests: Counter[str] = Counter()

    async def create(self, key: str, body: bytes) -> bool:
        self.requests["PUT"] += 1
        return await super().create(key, body)

    async def keys(self, prefix: str) -> list[str]:
        self.requests["LIST"] += 1
        return await super().keys(prefix)

    async def written(self, prefix: str) -> Written:
        self.requests["LIST"] += 1
        return await super().written(prefix)


NAMES = ("clotho-llm-host-0", "clotho-sandbox-host", "clotho-sandbox-host-0")
"""Those of a worker process with all roles."""


@pytest.fixture
def a_day(monkeypatch: pytest.MonkeyPatch) -> Passing:
    day = Passing(86_400.0)
    monkeypatch.setattr(heartbeats, "boot_seconds", day.seconds)
    monkeypatch.setattr(heartbeats, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": day.sleep}))
    return day


async def test_a_day_of_an_idle_process_costs_few_requests(tmp_path: Path, a_day: Passing) -> None:
    store = CountingStore(tmp_path)
    process = Heartbeats([Liveness(Journal(store), name) for name in NAMES], holds=lambda: False)
    with pytest.raises(asyncio.CancelledError):
        await process.run()
    assert store.requests["PUT"] <= 1_500
    assert store.requests["LIST"] <= 10


async def test_a_process_that_holds_sandboxes_says_so_all_the_time(tmp_path: Path, a_day: Passing) -> None:
    store = CountingStore(tmp_path)
    a_day._end = 3_600.0
    with pytest.raises(asyncio.CancelledError):
        await Heartbeats([Liveness(Journal(store), HOST)], holds=lambda: True).run()
    assert store.requests["PUT"] == 3_600 / PERIOD_SECONDS + 1
    assert len(await store.keys(f"~present/{HOST}/")) == KEPT_HEARTBEATS


async def test_an_idle_process_is_alive_for_longer_and_says_so_before_it_works(
    journal: Journal, tmp_path: Path
) -> None:
    sign = Liveness(journal, HOST)
    await sign.beat(idle=True)
    let_pass(tmp_path, LIVENESS_SECONDS + 1)
    assert (await last_signs(journal))[HOST].alive
    assert await heartbeat_age(journal, HOST) > LIVENESS_SECONDS, "its work moves on, of which there is none"
    process = Heartbeats([sign], holds=lambda: False)
    async with process.working():
        assert await heartbeat_age(journal, HOST) < LIVENESS_SECONDS
    let_pass(tmp_path, IDLE_PERIOD_SECONDS + LIVENESS_SECONDS)
    assert not (await last_signs(journal))[HOST].alive


async def test_a_process_that_ends_leaves_no_heartbeats_unless_it_leaves_sandboxes(journal: Journal) -> None:
    for holds in (False, True):
        process = Heartbeats([Liveness(journal, HOST)], partial(bool, holds))
        async with process.working():
            pass
        await process.leave()
        assert bool(await journal.keys(f"~present/{HOST}/")) is holds


async def test_a_machine_with_the_name_of_another_that_lives_is_refused(journal: Journal) -> None:
    first = Liveness(journal, HOST, machine="first")
    await first.beat()
    await Liveness(journal, HOST, machine="first").require_name()  # another process of it
    beating = asyncio.create_task(_beat_often(first))
    with pytest.raises(InvalidInput, match=f"another machine has this one's name, and lives: .* of {HOST};"):
        await Liveness(journal, HOST, machine="second").require_name()
    beating.cancel()


async def test_a_machine_that_replaces_one_of_its_name_waits_for_its_silence(
    journal: Journal, tmp_path: Path
) -> None:
    await Liveness(journal, HOST, machine="first").beat()
    waiting = asyncio.create_task(Liveness(journal, HOST, machine="second").require_name())
    await asyncio.sleep(0)
    assert not waiting.done()
    let_pass(tmp_path, LIVENESS_SECONDS + 1)
    await waiting


async def _beat_often(sign: Liveness) -> None:
    while True:
        await sign.beat()
        await asyncio.sleep(0.5)
