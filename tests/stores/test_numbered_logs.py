"""Numbered logs in every store: no number is used twice, whoever writes, falls behind or dies half-way."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clotho.journal.folder import FilesystemStore
from clotho.journal.numbered_log import NumberedLog
from clotho.journal.store import Store, Written
from tests.stores.conftest import Place
from tests.stores.test_store_conformance import place, store

__all__ = ["place", "store"]

LOG = "run/~log/"
KEPT = 2
APPENDERS = """
import asyncio, sys
from pathlib import Path
from clotho.journal.folder import FilesystemStore
from clotho.journal.numbered_log import NumberedLog

async def main():
    log = NumberedLog(FilesystemStore(Path(sys.argv[1])), "run/~log/", 2)
    for _ in range(40):
        print(await log.append(lambda key: sys.argv[2].encode()))

asyncio.run(main())
"""


class Killed(Exception):
    """The writer died."""


class Interrupted:
    """A store whose writer dies before, or after, one of its operations."""

    def __init__(self, store: Store, at: int) -> None:
        self._store = store
        self._left = at
        self.identity = store.identity

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed

    async def create(self, key: str, body: bytes) -> bool:
        self._step()
        return await self._store.create(key, body)

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        self._step()
        return await self._store.read_many(keys)

    async def keys(self, prefix: str) -> list[str]:
        self._step()
        return await self._store.keys(prefix)

    async def written(self, prefix: str) -> Written:
        self._step()
        return await self._store.written(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        self._step()
        await self._store.delete(keys)


class Behind(Interrupted):
    """A store whose first listing is old by the time that its caller has it."""

    def __init__(self, store: Store, meanwhile: int, kept: int) -> None:
        super().__init__(store, 1_000)
        self._meanwhile = meanwhile
        self._kept = kept
        self.taken: list[int] = []

    async def keys(self, prefix: str) -> list[str]:
        listed = await super().keys(prefix)
        log = NumberedLog(self._store, prefix, self._kept)
        while len(self.taken) < self._meanwhile:
            self.taken.append(await log.append(lambda _: b"another's"))
        return listed


async def append(store: Store, text: str = "mine", kept: int | None = KEPT) -> int:
    return await NumberedLog(store, LOG, kept).append(lambda _: text.encode())


async def contents(store: Store) -> dict[int, bytes]:
    log = NumberedLog(store, LOG)
    numbers = await log.numbers()
    bodies = await store.read_many([log.key(number) for number in numbers])
    return {number: body for number, body in zip(numbers, bodies, strict=True) if body is not None}


async def test_numbers_count_up_and_what_was_replaced_goes(store: Store) -> None:
    assert [await append(store, str(number)) for number in range(6)] == [0, 1, 2, 3, 4, 5]
    assert await contents(store) == {4: b"4", 5: b"5"}
    assert await append(store, kept=None) == 6


async def test_writers_at_once_each_have_a_number_of_their_own(place: Place) -> None:
    stores = await asyncio.gather(*(asyncio.to_thread(place.open) for _ in range(4)))
    appended = await asyncio.gather(*(append(store, str(n)) for n in range(8) for store in stores))
    assert len(set(appended)) == len(appended) == 32
    assert max(await contents(stores[0])) == max(appended)


@pytest.mark.parametrize("meanwhile", range(1, 6))
async def test_one_that_falls_behind_uses_no_number_that_was_deleted(store: Store, meanwhile: int) -> None:
    await append(store)
    behind = Behind(store, meanwhile, kept=1)
    number = await append(behind, kept=1)
    assert number not in behind.taken
    assert (await contents(store))[max(await contents(store))] == b"mine"
    assert number == max(await contents(store))


@pytest.mark.parametrize("meanwhile", range(1, 6))
async def test_what_follows_a_number_that_is_the_last_no_more_is_refused(
    store: Store, meanwhile: int
) -> None:
    log = NumberedLog(store, LOG, 1)
    last = await append(store, "the last")
    taken = [await append(store, "another's", 1) for _ in range(meanwhile)]
    assert await log.append_after(last, lambda _: b"mine") is None
    assert (
        b"mine" not in {number: body for number, body in (await contents(store)).items() if number}.values()
    )
    assert await log.append_after(taken[-1], lambda _: b"mine") == taken[-1] + 1
    assert await log.append_after(taken[-1], lambda _: b"mine") == taken[-1] + 1, "asked again for an answer"


async def test_one_of_many_racing_to_follow_wins(store: Store) -> None:
    last = await append(store)
    logs = [NumberedLog(store, LOG, KEPT) for _ in range(8)]

    async def follow(number: int) -> int | None:
        return await logs[number].append_after(last, lambda _: str(number).encode())

    won = await asyncio.gather(*(follow(number) for number in range(8)))
    assert sorted(won, key=str) == [1, *[None] * 7]


async def test_numbers_of_more_digits_are_later_ones(store: Store) -> None:
    for number in (0, 999_999):
        await store.create(NumberedLog(store, LOG).key(number), b"")
    assert await append(store) == 1_000_000
    assert await append(store) == 1_000_001


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["appends", "dies", "is behind"]), st.integers(0, 7)), max_size=12))
@pytest.mark.slow
async def test_whatever_becomes_of_writers_the_last_counts_and_no_number_comes_again(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, int]]
) -> None:
    store = FilesystemStore(tmp_path_factory.mktemp("log"))
    used: list[int] = []
    for what, count in story:
        match what:
            case "appends":
                used.append(await append(store))
            case "dies":
                with contextlib.suppress(Killed):
                    used.append(await append(Interrupted(store, count)))
            case "is behind":
                behind = Behind(store, count, KEPT)
                mine = await append(behind)
                assert mine == max(await contents(store))
                used += [*behind.taken, mine]
    assert len(set(used)) == len(used)
    assert used == sorted(used)


async def test_processes_at_once_each_have_numbers_of_their_own(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", APPENDERS, str(tmp_path), str(number)] for number in range(4)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    said = await asyncio.gather(*(asyncio.to_thread(one.communicate) for one in running))
    each = [[int(line) for line in output.splitlines()] for output, _ in said]
    assert all(numbers == sorted(numbers) and len(numbers) == 40 for numbers in each)
    numbers = [number for one in each for number in one]
    assert len(set(numbers)) == 160
    assert max(await contents(FilesystemStore(tmp_path))) == max(numbers)
