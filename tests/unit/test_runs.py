"""Finished groups are found at their computed keys: a run of a million items is not listed for them."""

from collections.abc import Sequence
from pathlib import Path
from sys import getsizeof

import pytest

from clotho.cli.follow import GROUPS_SHOWN, groups_table
from clotho.cli.run_states import scored_count
from clotho.identifiers.ids import group_id
from clotho.identifiers.keys import items_key, scored_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import ItemChunk
from clotho.runs.groups import group_ids, is_large, scored_groups
from clotho.runs.items import ITEMS_PER_CHUNK, write_items


class Listed(FilesystemStore):
    """A store that notes what is listed, and counts what is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.prefixes: list[str] = []
        self.read = 0

    async def keys(self, prefix: str) -> list[str]:
        self.prefixes.append(prefix)
        return await super().keys(prefix)

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        self.read += len(keys)
        return await super().read_many(keys)


@pytest.fixture
def store(tmp_path: Path) -> Listed:
    return Listed(tmp_path)


async def write_scored(journal: Journal, *groups: str) -> None:
    for group in groups:
        await journal.write(scored_key(group), GroupEntry(item={}, toolsets=(), siblings=()))


async def test_no_run_is_listed_for_its_scored_groups(store: Listed) -> None:
    journal, wanted = Journal(store), [group_id("many", item) for item in (0, 7, 120, 749)]
    await write_items(journal, "many", [{"number": number} for number in range(750)])
    await write_scored(journal, *wanted)
    reader = Journal(store)
    assert [group for group, _ in await scored_groups(reader, "many")] == wanted
    assert [group for group, _ in await scored_groups(reader, "many", 2)] == wanted[:2]
    assert set(store.prefixes) == {"many/~items/"}


async def test_groups_of_items_that_were_never_enumerated_are_looked_for(store: Listed) -> None:
    journal = Journal(store)
    await write_scored(journal, "drawn/abc.0", "drawn/abc.1")
    assert [group for group, _ in await scored_groups(journal, "drawn")] == ["drawn/abc.0", "drawn/abc.1"]


async def test_no_run_is_listed_to_show_its_first_groups(store: Listed) -> None:
    wanted = [group_id("shown", item) for item in range(GROUPS_SHOWN + 1)]
    await write_items(Journal(store), "shown", [{"number": number} for number in range(60)])
    await write_scored(Journal(store), *wanted[:-1])
    all_of_them = await groups_table(Journal(store), "shown")
    assert (all_of_them.row_count, all_of_them.caption) == (GROUPS_SHOWN, None)
    await write_scored(Journal(store), wanted[-1])
    first_ones = await groups_table(Journal(store), "shown")
    assert (first_ones.row_count, first_ones.caption is None) == (GROUPS_SHOWN, False)
    assert set(store.prefixes) == {"shown/~items/"}


async def test_a_run_of_a_million_items_is_shown_without_making_or_reading_as_many_ids(store: Listed) -> None:
    journal = Journal(store)
    last = 1_000_000 // ITEMS_PER_CHUNK - 1
    items = tuple({"number": number} for number in range(ITEMS_PER_CHUNK))
    await journal.write(items_key("huge", last), ItemChunk(items=items))
    await write_scored(journal, *(group_id("huge", item) for item in (3, 400)))
    groups = await group_ids(journal, "huge")
    assert (len(groups), groups[7], groups[-1]) == (1_000_000, group_id("huge", 7), group_id("huge", 999_999))
    assert groups[2:4] == [group_id("huge", 2), group_id("huge", 3)]
    assert getsizeof(groups) < 1_000
    assert (await groups_table(Journal(store), "huge")).row_count == 2
    assert store.read < 3_000
    assert await is_large(journal, "huge")
    assert await scored_count(journal, None, "huge") is None
    assert set(store.prefixes) == {"huge/~items/"}, "no list of what the run has"
