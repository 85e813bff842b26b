"""Write-once entries, single flights, sealed rollouts, and damage that is found."""

import asyncio
import gc
import json
import os
import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from clotho.errors import JournalCorrupt, ModelUnavailable, SandboxLost, StoreUnavailable
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.item import ItemChunk
from clotho.rollouts.verification import EpochEntry
from tests.support import PATIENCE_SECONDS

KEY = "run/g000000/r0/epoch/000000"


class SlowReads(FilesystemStore):
    """A store whose reads take a while, as a remote one's."""

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        await asyncio.sleep(0.03)
        return await super().read_many(keys)


class FullStore(FilesystemStore):
    """A store that takes nothing while it is full."""

    full = True

    async def create(self, key: str, body: bytes) -> bool:
        if self.full:
            raise StoreUnavailable("No space left on device")
        return await super().create(key, body)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def journal(root: Path) -> Journal:
    return Journal(FilesystemStore(root))


async def entry(reason: str = "done") -> EpochEntry:
    return EpochEntry(reason=reason)


async def test_work_is_done_once_and_found_by_every_other_journal(root: Path) -> None:
    calls = 0

    async def work() -> EpochEntry:
        nonlocal calls
        calls += 1
        return await entry(f"call {calls}")

    for _ in range(3):
        assert (await Journal(FilesystemStore(root)).once(KEY, EpochEntry, work)).reason == "call 1"
    assert calls == 1


@pytest.mark.parametrize("by", ["the next attempt", "a drain"])
async def test_work_that_could_not_be_written_is_not_done_again(root: Path, by: str) -> None:
    store = FullStore(root)
    journal, calls = Journal(store), 0

    async def work() -> EpochEntry:
        nonlocal calls
        calls += 1
        return await entry()

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await journal.once(KEY, EpochEntry, work)
    store.full = False
    await (journal.drain(0) if by == "a drain" else journal.once(KEY, EpochEntry, work))
    assert await Journal(FilesystemStore(root)).read(KEY, EpochEntry) == await entry()
    assert calls == 1


async def test_staggered_attempts_over_a_slow_store_share_one_flight(root: Path) -> None:
    journal = Journal(SlowReads(root))
    calls: list[str] = []

    async def attempt(key: str, delay: float) -> None:
        async def work() -> EpochEntry:
            calls.append(key)
            await asyncio.sleep(0.01)
            return await entry()

        await asyncio.sleep(delay)
        await journal.once(key, EpochEntry, work)

    pairs = [(f"run/g0/r{n}/epoch/000000", n * 0.0007) for n in range(100)]
    await asyncio.gather(*(attempt(key, delay) for key, d in pairs for delay in (0.0, d)))
    assert len(calls) == len(set(calls)) == 100


async def test_a_cancelled_attempt_leaves_the_flight_to_the_next(journal: Journal) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    calls = 0

    async def work() -> EpochEntry:
        nonlocal calls
        calls += 1
        started.set()
        await go_on.wait()
        return await entry()

    first = asyncio.create_task(journal.once(KEY, EpochEntry, work))
    await started.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(journal.once(KEY, EpochEntry, work))
    go_on.set()
    assert (await second).reason == "done"
    assert calls == 1


async def test_what_work_needs_is_read_beside_the_look_up(root: Path) -> None:
    """A look-up that ends only after the inputs were read would otherwise never end."""
    have_read = asyncio.Event()

    class Watched(FilesystemStore):
        async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
            await have_read.wait()
            return await super().read_many(keys)

    async def read() -> str:
        have_read.set()
        return "read"

    made = await Journal(Watched(root)).once_from(KEY, EpochEntry, read, entry)
    assert made.reason == "read"


async def test_what_can_not_be_read_counts_only_where_there_is_no_entry(journal: Journal) -> None:
    """A sealed rollout's sandbox is gone, and what a command in it came to is still found."""

    async def lost() -> str:
        raise SandboxLost("gone")

    with pytest.raises(SandboxLost):
        await journal.once_from(KEY, EpochEntry, lost, entry)
    await journal.write(KEY, await entry())
    assert (await journal.once_from(KEY, EpochEntry, lost, entry)).reason == "done"


async def test_what_follows_the_entry_is_done_though_its_caller_is_gone(journal: Journal) -> None:
    working, released, followed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def nothing() -> None: ...

    async def work(_: None) -> EpochEntry:
        working.set()
        await released.wait()
        return await entry()

    async def follow(written: EpochEntry) -> None:
        assert await journal.read(KEY, EpochEntry) == written
        followed.set()

    caller = asyncio.create_task(journal.once_from(KEY, EpochEntry, nothing, work, follow))
    await working.wait()
    caller.cancel()
    released.set()
    await followed.wait()


async def test_an_abandoned_flight_stops(journal: Journal) -> None:
    started = asyncio.Event()

    async def work() -> EpochEntry:
        started.set()
        await asyncio.Event().wait()
        return await entry()

    attempt = asyncio.create_task(journal.once(KEY, EpochEntry, work))
    await started.wait()
    journal.cancel_flight(KEY)
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert await journal.read(KEY, EpochEntry) is None


async def test_landing_waits_for_flights(journal: Journal) -> None:
    answered = asyncio.Event()

    async def work() -> EpochEntry:
        await answered.wait()
        return await entry()

    attempt = asyncio.create_task(journal.once(KEY, EpochEntry, work))
    await asyncio.sleep(0)
    landing = asyncio.create_task(journal.drain(PATIENCE_SECONDS))
    await asyncio.wait([landing], timeout=0.02)
    assert not landing.done()
    answered.set()
    await landing
    assert await journal.read(KEY, EpochEntry) is not None
    await attempt


async def test_failed_work_writes_nothing_and_may_be_tried_again(journal: Journal) -> None:
    async def fail() -> EpochEntry:
        raise ModelUnavailable("later")

    with pytest.raises(ModelUnavailable):
        await journal.once(KEY, EpochEntry, fail)
    assert (await journal.once(KEY, EpochEntry, entry)).reason == "done"


async def test_the_loser_of_a_race_returns_the_winners_entry(root: Path) -> None:
    first, second = Journal(FilesystemStore(root)), Journal(FilesystemStore(root))
    assert (await first.write(KEY, await entry("one"))).reason == "one"
    assert (await second.write(KEY, await entry("two"))).reason == "one"


async def test_a_sealed_rollout_reads_as_before_from_one_object(root: Path, journal: Journal) -> None:
    keys = [f"run/g000000/r0/epoch/{n:06}" for n in range(5)]
    for number, key in enumerate(keys):
        await journal.write(key, await entry(str(number)))
    await journal.seal("run/g000000/r0")
    assert await journal.keys("run/g000000/r0/") == ["run/g000000/r0/sealed"]
    reader = Journal(FilesystemStore(root))
    found = await reader.read_many(keys, EpochEntry)
    assert [e.reason for e in found if e] == ["0", "1", "2", "3", "4"]
    assert await reader.read("run/g000000/r0/epoch/000009", EpochEntry) is None


async def test_the_sealed_entry_counts_over_one_that_a_late_attempt_writes(
    root: Path, journal: Journal
) -> None:
    await journal.write(KEY, await entry("paid"))
    await journal.seal("run/g000000/r0")
    store = FilesystemStore(root)
    from clotho.journal.journal import encode

    await store.create(KEY, encode(KEY, await entry("zombie")))
    found = await Journal(store).read(KEY, EpochEntry)
    assert found is not None and found.reason == "paid"


async def test_sealing_again_and_sealing_half_way_are_harmless(root: Path, journal: Journal) -> None:
    await journal.write(KEY, await entry("kept"))
    await journal.seal("run/g000000/r0")
    await Journal(FilesystemStore(root)).seal("run/g000000/r0")
    found = await Journal(FilesystemStore(root)).read(KEY, EpochEntry)
    assert found is not None and found.reason == "kept"


async def test_the_last_numbered_entry_counts(journal: Journal) -> None:
    assert await journal.latest("run/~x/", EpochEntry) is None
    for number in range(12):
        await journal.append("run/~x/", await entry(str(number)))
    latest = await journal.latest("run/~x/", EpochEntry)
    assert latest is not None and latest.reason == "11"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda b: b[:-4], "checksum"),
        (lambda b: b.replace(b"done", b"dome"), "checksum"),
        (lambda b: b"", "no readable header"),
        (lambda b: b"\x00" * len(b), "no readable header"),
        (lambda b: b'{"clotho": 99, "kind": "EpochEntry", "key": "k", "sha256": "x"}\n{}', "schema"),
    ],
)
async def test_damage_is_found_and_names_the_key(
    root: Path, journal: Journal, damage: object, named: str
) -> None:
    assert callable(damage)
    await journal.write(KEY, await entry())
    path = root / KEY
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(JournalCorrupt, match=f"{KEY}.*{named}"):
        await Journal(FilesystemStore(root)).read(KEY, EpochEntry)


async def test_an_entry_copied_to_another_key_or_of_another_kind_is_foreign(
    root: Path, journal: Journal
) -> None:
    await journal.write(KEY, await entry())
    other = root / "run/g000000/r1/epoch"
    other.mkdir(parents=True)
    (other / "000000").write_bytes((root / KEY).read_bytes())
    reader = Journal(FilesystemStore(root))
    with pytest.raises(JournalCorrupt, match="key is"):
        await reader.read("run/g000000/r1/epoch/000000", EpochEntry)
    with pytest.raises(JournalCorrupt, match="kind is 'EpochEntry'"):
        await reader.read(KEY, ItemChunk)
    await journal.read(KEY, EpochEntry)
    with pytest.raises(JournalCorrupt):
        await journal.read(KEY, ItemChunk)


async def test_a_damaged_seal_is_found(root: Path, journal: Journal) -> None:
    await journal.write(KEY, await entry())
    await journal.seal("run/g000000/r0")
    (root / "run/g000000/r0/sealed").write_bytes(b"not zstandard")
    with pytest.raises(JournalCorrupt, match="run/g000000/r0/sealed"):
        await Journal(FilesystemStore(root)).read(KEY, EpochEntry)


async def test_entries_are_files_a_person_can_read(root: Path, journal: Journal) -> None:
    await journal.write(KEY, await entry("because"))
    header, body = (root / KEY).read_text().splitlines()
    assert json.loads(header)["kind"] == "EpochEntry"
    assert json.loads(body)["reason"] == "because"


async def test_the_event_loop_runs_on_while_the_disk_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk goes on only once the loop says so: a write on the loop itself would wait in vain."""
    journal = Journal(FilesystemStore(tmp_path / "s"))
    stalled, goes_on = threading.Event(), threading.Event()
    flush = os.fsync

    def slow(descriptor: int) -> None:
        stalled.set()
        assert goes_on.wait(PATIENCE_SECONDS), "the event loop is held up by the disk"
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    writes = [asyncio.create_task(journal.write(f"run/g0/r{n}/epoch/000000", entry_of(n))) for n in range(30)]
    while not stalled.is_set():
        await asyncio.sleep(0.001)
    assert not any(write.done() for write in writes)
    goes_on.set()
    await asyncio.gather(*writes)


def entry_of(number: int) -> EpochEntry:
    return EpochEntry(reason=f"number {number}")


async def test_many_entries_are_read_though_the_cache_holds_few(root: Path) -> None:
    """Those that come in push the first out: an entry that is there must not count as missing."""
    keys = [f"run/g000000/r0/epoch/{number:06}" for number in range(100)]
    writer, reader = (Journal(FilesystemStore(root), cache_bytes=10_000) for _ in range(2))
    for key in keys:
        await writer.write(key, EpochEntry(reason=key))
    for journal in (writer, reader, reader):
        entries = await journal.read_many(keys, EpochEntry)
        assert [one and one.reason for one in entries] == keys


async def test_reads_side_by_side_find_what_the_cache_lets_go(root: Path) -> None:
    keys = [f"run/g000000/r0/epoch/{number:06}" for number in range(20)]
    journal = Journal(SlowReads(root), cache_bytes=3_000)
    for key in keys:
        await journal.write(key, EpochEntry(reason=key))
    others = (journal.read_many([key], EpochEntry) for key in keys[:10])
    *_, pair = await asyncio.gather(*others, journal.read_many([keys[-1], keys[10]], EpochEntry))
    assert [one and one.reason for one in pair] == [keys[-1], keys[10]]


async def test_the_memory_of_entries_is_bounded(root: Path) -> None:
    """Also that of many small ones, which take several times their JSON."""
    bound = 1 << 20
    journal = Journal(FilesystemStore(root), cache_bytes=bound)
    tracemalloc.start()
    try:
        for number in range(3_000):
            await journal.write(f"run/g000000/r0/epoch/{number:06}", EpochEntry(reason=str(number)))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < bound
