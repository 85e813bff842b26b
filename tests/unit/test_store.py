"""What every store promises; a new backend is one more parameter of the fixture."""

import asyncio
import multiprocessing
import subprocess
from pathlib import Path

import pytest

from clotho.errors import InvalidInput, StoreUnavailable
from clotho.store.base import Store
from clotho.store.filesystem import FilesystemStore


@pytest.fixture(params=["filesystem"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return FilesystemStore(tmp_path / "store")


async def test_the_first_writer_wins(store: Store) -> None:
    assert await store.create("run/g0/r0/turn/0000", b"first")
    assert not await store.create("run/g0/r0/turn/0000", b"second")
    assert await store.read_many(["run/g0/r0/turn/0000"]) == [b"first"]


async def test_one_of_many_racing_writers_wins(store: Store) -> None:
    for number in range(20):
        wins = await asyncio.gather(*(store.create(f"race/{number}", bytes([w])) for w in range(8)))
        assert wins.count(True) == 1
        assert await store.read_many([f"race/{number}"]) == [bytes([wins.index(True)])]


async def test_reads_keep_the_order_asked_for_and_report_what_is_missing(store: Store) -> None:
    for name in "abc":
        await store.create(f"x/{name}", name.encode())
    assert await store.read_many(["x/c", "x/nothing", "x/a", "x/a/below", "y/b"]) == [
        b"c",
        None,
        b"a",
        None,
        None,
    ]


async def test_keys_lists_a_prefix_sorted(store: Store) -> None:
    for key in ("r/g1/scored", "r/g1/r0/prompt", "r/g2/scored", "other/x"):
        await store.create(key, b"")
    assert await store.keys("r/g1/") == ["r/g1/r0/prompt", "r/g1/scored"]
    assert await store.keys("r/") == ["r/g1/r0/prompt", "r/g1/scored", "r/g2/scored"]
    assert await store.keys("nothing/") == []


async def test_delete_ignores_what_is_not_there(store: Store) -> None:
    await store.create("a/b", b"x")
    await store.delete(["a/b", "a/c"])
    assert await store.read_many(["a/b"]) == [None]
    assert await store.create("a/b", b"again")


async def test_large_and_empty_blobs(store: Store) -> None:
    large = bytes(range(256)) * 40_000
    assert await store.create("blob/large", large)
    assert await store.create("blob/empty", b"")
    assert await store.read_many(["blob/large", "blob/empty"]) == [large, b""]


def _write_until_killed(root: str) -> None:
    async def write() -> None:
        store = FilesystemStore(Path(root))
        number = 0
        while True:
            await store.create(f"k/{number:06}", b"x" * 50_000)
            number += 1

    asyncio.run(write())


async def test_a_killed_writer_leaves_whole_blobs_only(tmp_path: Path) -> None:
    writer = multiprocessing.get_context("spawn").Process(
        target=_write_until_killed, args=(str(tmp_path / "s"),)
    )
    writer.start()
    store = FilesystemStore(tmp_path / "s")
    while len(await store.keys("k/")) < 30:
        await asyncio.sleep(0.01)
    writer.kill()
    writer.join()
    blobs = await store.read_many(await store.keys("k/"))
    assert {len(blob or b"") for blob in blobs} == {50_000}


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="can't be written"):
        FilesystemStore(tmp_path / "file" / "store")


async def test_a_full_disk_is_an_outage_and_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], check=True)
    try:
        store = FilesystemStore(disk / "store")
        assert await store.create("small", b"x" * 50_000)
        with pytest.raises(StoreUnavailable, match="No space left"):
            await store.create("large", b"x" * 500_000)
        assert await store.read_many(["small", "large"]) == [b"x" * 50_000, None]
        assert await store.create("other", b"x" * 50_000), "the failed write must give its space back"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
