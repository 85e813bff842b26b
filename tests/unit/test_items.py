"""A run's dataset in the store: written in chunks, and continued where items are added."""

from pathlib import Path

import pytest

from clotho.errors import InvalidInput
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.item import Item
from clotho.runs.items import (
    ITEMS_PER_CHUNK,
    count_items,
    enumerate_items,
    items_notice,
    read_item,
    write_items,
)

RUN = "r"


@pytest.fixture
def store(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore(tmp_path)


def numbered(count: int) -> list[Item]:
    return [{"number": number} for number in range(count)]


class Dataset:
    """A dataset of so many items, drawn from its start."""

    def __init__(self, size: int) -> None:
        self._left = numbered(size)
        self.drawn = 0

    async def draw(self, number: int) -> tuple[Item, ...]:
        items, self._left = self._left[:number], self._left[number:]
        self.drawn += len(items)
        return tuple(items)


@pytest.mark.parametrize("sizes", [(30, 31, 250), (100, 101, 300), (99, 100, 199, 200)])
async def test_items_are_added_after_those_that_the_run_has(
    store: FilesystemStore, sizes: tuple[int, ...]
) -> None:
    for size in sizes:
        await write_items(Journal(store), RUN, numbered(size))
        assert await count_items(Journal(store), RUN) == size
    reader = Journal(store)
    assert [await read_item(reader, RUN, index) for index in range(sizes[-1])] == numbered(sizes[-1])


@pytest.mark.parametrize(
    "others", [[{"number": 7}], numbered(20), [*numbered(29), {"number": -1}, *numbered(40)]]
)
async def test_items_that_do_not_continue_the_runs_own_are_refused(
    store: FilesystemStore, others: list[Item]
) -> None:
    await write_items(Journal(store), RUN, numbered(30))
    with pytest.raises(InvalidInput, match="other items"):
        await write_items(Journal(store), RUN, others)
    assert await count_items(Journal(store), RUN) == 30


async def test_a_dataset_is_enumerated_as_far_as_it_is_wanted(store: FilesystemStore) -> None:
    size = 3 * ITEMS_PER_CHUNK + 20
    assert await enumerate_items(Journal(store), RUN, Dataset(size).draw, 8) == 8
    assert await enumerate_items(Journal(store), RUN, Dataset(size).draw, 150) == 150
    again = Dataset(size)
    assert await enumerate_items(Journal(store), RUN, again.draw, 200) == 200
    assert again.drawn == 0, "the store has them"
    assert await enumerate_items(Journal(store), RUN, Dataset(size).draw, 1_000) == size
    assert await read_item(Journal(store), RUN, size - 1) == {"number": size - 1}


async def test_a_dataset_that_ends_with_a_chunk_has_no_more(store: FilesystemStore) -> None:
    for _ in range(2):
        assert await enumerate_items(Journal(store), RUN, Dataset(ITEMS_PER_CHUNK).draw, 500) == 100
    with pytest.raises(InvalidInput, match="other items"):
        await write_items(Journal(store), RUN, numbered(150))


async def test_fewer_items_than_groups_and_repeated_ones_are_told(store: FilesystemStore) -> None:
    journal = Journal(store)
    await write_items(journal, RUN, numbered(4) * 30)
    assert await items_notice(journal, RUN, 4, 4) is None
    assert await items_notice(journal, RUN, 120, 120) == (
        "items repeat: the 120 groups have only 4 different items"
    )
    assert await items_notice(journal, RUN, 120, 200) == (
        "there are only 120 items: the run has 120 groups, not 200"
    )
    await write_items(journal, "large", [*numbered(999), {"number": 1}, *numbered(200)])
    assert await items_notice(journal, "large", 1_200, 1_200) == (
        "items repeat: the first 1000 groups have only 999 different items"
    )
