"""Finished groups are found at their computed keys: a run of a million items is not listed for them."""

from pathlib import Path

import pytest

from clotho.cli.follow import GROUPS_SHOWN, groups_table
from clotho.identifiers.group_keys import scored_key
from clotho.identifiers.ids import group_id
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.group import GroupEntry
from clotho.runs.groups import scored_groups
from clotho.runs.items import write_items


class Listed(FilesystemStore):
    """A store that notes what is listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.prefixes: list[str] = []

    async def keys(self, prefix: str) -> list[str]:
        self.prefixes.append(prefix)
        return await super().keys(prefix)


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
