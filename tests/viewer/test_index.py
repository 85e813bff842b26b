"""The index of a run: what it finds in a growing store, and what it keeps on the disk."""

import shutil
from pathlib import Path

import pytest

from clotho.identifiers.ids import group_id
from clotho.identifiers.keys import adapter_items_prefix, scored_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.plugins.viewer import run_index
from clotho.plugins.viewer.listing import Wanted, histogram, page_of, sums_of
from clotho.plugins.viewer.run_index import RunIndex
from clotho.rollouts.item import AdapterItem
from tests.support import PATIENCE_SECONDS
from tests.viewer.stored import group_entry, write_group, write_run


@pytest.fixture
def store(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore(tmp_path / "store")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look goes into the store, and each is kept."""
    monkeypatch.setattr(run_index, "PERIOD_SECONDS", 0.0)
    monkeypatch.setattr(run_index, "KEPT_AFTER", 1)


async def looked(index: RunIndex) -> list[str]:
    await index.look(PATIENCE_SECONDS)
    return [row.name for row in index.in_order]


async def test_groups_are_found_as_they_are_scored_in_any_order(
    store: FilesystemStore, tmp_path: Path
) -> None:
    journal, index = Journal(store), RunIndex(store, "grows", tmp_path / "cache")
    await write_run(journal, "grows", 1_200)
    assert await looked(index) == []
    assert (index.known, index.total) == (True, 1_200)
    for item in (3, 400, 880, 0):
        await write_group(journal, "grows", item, 0.0, 1.0)
    # Fewer than 500 groups in a row are missing.
    assert await looked(index) == ["g000000", "g000003", "g000400", "g000880"]
    await write_group(journal, "grows", 1, 1.0, 1.0)
    assert await looked(index) == ["g000000", "g000001", "g000003", "g000400", "g000880"]
    assert index.begun_candidates[:2] == ["grows/g000002", "grows/g000004"]


async def test_another_viewer_reads_from_the_disk_what_this_one_found(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(store)
    await write_run(journal, "kept", 40)
    for item in range(30):
        await write_group(journal, "kept", item, 0.25, 0.75)
    first = RunIndex(store, "kept", tmp_path / "cache")
    assert len(await looked(first)) == 30
    read: list[str] = []
    read_many = FilesystemStore.read_many

    async def counting(self: FilesystemStore, keys: list[str]) -> list[bytes | None]:
        read.extend(key for key in keys if key.endswith("/scored"))
        return await read_many(self, keys)

    monkeypatch.setattr(FilesystemStore, "read_many", counting)
    second = RunIndex(store, "kept", tmp_path / "cache")
    assert await looked(second) == await looked(first)
    assert second.rows == first.rows
    scored = {scored_key(group_id("kept", item)) for item in range(30)}
    assert len(scored.intersection(read)) == 3  # that it is the same run


async def test_rows_of_a_store_that_was_made_anew_are_dropped(tmp_path: Path) -> None:
    for seconds in (1.5, 2.5):
        store = FilesystemStore(tmp_path / "store")
        await write_run(Journal(store), "anew", 3)
        await write_group(Journal(store), "anew", 0, 1.0, 0.0, seconds=seconds)
        index = RunIndex(store, "anew", tmp_path / "cache")
        assert await looked(index) == ["g000000"]
        assert index.in_order[0].seconds == seconds
        shutil.rmtree(tmp_path / "store")


async def test_a_damaged_group_or_index_hides_no_other(store: FilesystemStore, tmp_path: Path) -> None:
    journal = Journal(store)
    await write_run(journal, "damaged", 4)
    for item in (0, 2):
        await write_group(journal, "damaged", item, 1.0, 0.0)
    broken = tmp_path / "store" / scored_key(group_id("damaged", 1))
    broken.parent.mkdir(parents=True)
    broken.write_text("no entry\n")
    for content in (None, b"", b"no index", b"\x28\xb5\x2f\xfd"):
        for file in (tmp_path / "cache").rglob("*.zst"):
            file.write_bytes(content or b"")
        index = RunIndex(store, "damaged", tmp_path / "cache")
        assert await looked(index) == ["g000000", "g000002"]
        assert list(index.problems) == [1]
        assert "damaged/g000001/scored" in index.problems[1]


async def test_groups_of_an_adapter_are_named_by_their_items(store: FilesystemStore, tmp_path: Path) -> None:
    journal, index = Journal(store), RunIndex(store, "drawn", tmp_path / "cache")
    for name in ("i-b.0", "i-a.0"):
        await journal.append(
            adapter_items_prefix("drawn"), AdapterItem(item={"id": name}, group=f"drawn/{name}", step=0)
        )
    entry = group_entry("drawn/g000000", (1.0,))
    await journal.write(scored_key("drawn/i-a.0"), entry)
    assert await looked(index) == ["i-a.0"]
    await journal.write(scored_key("drawn/i-b.0"), entry)
    assert await looked(index) == ["i-b.0", "i-a.0"]


async def test_lists_are_filtered_sorted_and_summed(store: FilesystemStore, tmp_path: Path) -> None:
    journal, index = Journal(store), RunIndex(store, "listed", tmp_path / "cache")
    await write_run(journal, "listed", 3)
    for item, scores in enumerate(((0.0, 0.0), (0.0, 1.0), (1.0, 1.0))):
        await write_group(journal, "listed", item, *scores)
    await index.look(PATIENCE_SECONDS)
    rows = index.in_order

    def names(**asked: str) -> list[str]:
        return [row.name[-1] for row in page_of(rows, Wanted.asked(asked)).rows]

    assert names() == ["0", "1", "2"]
    assert names(sort="-mean") == ["2", "1", "0"]
    assert names(spread="some") == ["1"]
    assert names(text="ITEM-2") == ["2"]
    assert names(disturbed="any") == names(outcome="limit_reached") == []
    assert names(sort="no column", page="99999999999999", spread="?") == ["0", "1", "2"]
    sums = sums_of(rows)
    assert (sums.rollouts, sums.mean, sums.undecided, sums.tokens) == (6, 0.5, 2, 900)
    assert [(bar.label, bar.height) for bar in sums.histogram] == [("0", 3), ("1", 3)]
    many = histogram([number / 100 for number in range(101)])
    assert len(many) == 20
    assert sum(bar.height for bar in many) == 101


def test_whole_numbers_are_not_divided_among_bars() -> None:
    turns = histogram([1 + number % 30 for number in range(300)])
    assert [bar.label for bar in turns][:2] == ["1 to 3", "3 to 5"]
    assert {bar.height for bar in turns} == {20}
    assert [bar.label for bar in histogram([1, 20_000, 3_000_000])] == ["1", "20k", "3M"]
