"""What only a store in a folder can run into."""

import asyncio
import errno
import gc
import multiprocessing
import os
import shutil
import subprocess
import threading
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from clotho.errors import InvalidInput, StoreUnavailable
from clotho.journal.folder import MOST_KNOWN_FOLDERS, THREADS, FilesystemStore, unfinished_writes
from tests.sandbox.conftest import needs_root
from tests.support import eventually


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="can't be written"):
        FilesystemStore(tmp_path / "file" / "store")


@needs_root
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


def _write_until_killed(root: Path) -> None:
    async def write() -> None:
        store = FilesystemStore(root)
        number = 0
        while True:
            await store.create(f"k/{number:06}", b"x" * 50_000)
            number += 1

    asyncio.run(write())


async def test_a_killed_writer_leaves_whole_blobs_only(tmp_path: Path) -> None:
    writer = multiprocessing.get_context("spawn").Process(target=_write_until_killed, args=(tmp_path,))
    writer.start()
    store = FilesystemStore(tmp_path)

    async def thirty() -> bool:
        return len(await store.keys("k/")) >= 30

    await eventually(thirty, "30 blobs")
    writer.kill()
    writer.join()
    blobs = await store.read_many(await store.keys("k/"))
    assert {len(blob or b"") for blob in blobs} == {50_000}


async def test_a_thread_that_cannot_be_started_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    store = FilesystemStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(StoreUnavailable, match="thread"):
            await store.create("x", b"x")
    assert await store.create("y", b"y")


@pytest.mark.slow
async def test_a_store_keeps_no_memory_of_all_folders(tmp_path: Path) -> None:
    """A worker writes into those of millions of rollouts."""
    store = FilesystemStore(tmp_path)

    async def write(first: int) -> int:
        for number in range(first, first + MOST_KNOWN_FOLDERS):
            assert await store.create(f"run/{number}/entry", b"x")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    await asyncio.gather(*(store.keys("run/") for _ in range(10 * THREADS)))  # all of its threads are there
    tracemalloc.start()
    try:
        kept = [await write(part * MOST_KNOWN_FOLDERS) for part in range(4)]
    finally:
        tracemalloc.stop()
    # in one part, Python may extend a table of its own, such as that of interned names
    assert min(after - before for before, after in pairwise(kept)) < 50 * MOST_KNOWN_FOLDERS
    assert await store.create("run/0/another", b"x"), "written into a folder that was forgotten"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
async def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Else what is there counts as never written: a rollout isn't sealed, an item is drawn a second time."""
    store = FilesystemStore(tmp_path)
    assert await store.create("run/entry/000000", b"x")
    real = os.scandir

    def failing(path: str) -> object:
        if str(path).startswith(str(tmp_path)):
            raise OSError(number, os.strerror(number), path)
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)
        with pytest.raises(StoreUnavailable):
            await store.keys("run/entry/")
    assert await store.keys("run/entry/") == ["run/entry/000000"]
    assert await store.keys("run/none/") == []


@pytest.mark.parametrize("removed", ["run", "run/group", ".tmp"])
async def test_a_folder_that_was_removed_by_hand_is_made_again(tmp_path: Path, removed: str) -> None:
    store = FilesystemStore(tmp_path)
    assert await store.create("run/group/a", b"first")
    shutil.rmtree(tmp_path / removed)
    assert await store.create("run/group/b", b"second")
    assert await store.read_many(["run/group/b"]) == [b"second"]


async def test_a_store_that_is_gone_is_an_outage_and_not_an_empty_one(tmp_path: Path) -> None:
    """Such as a network file system that was unmounted: what was paid for would be paid for again."""
    store = FilesystemStore(tmp_path / "store")
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreUnavailable, match="No such file"):
        await store.create("run/group/a", b"x")


def test_writes_of_killed_processes_are_found_after_a_day(tmp_path: Path) -> None:
    FilesystemStore(tmp_path)
    left, fresh = tmp_path / ".tmp" / "1-a-0", tmp_path / ".tmp" / "2-a-0"
    for path in (left, fresh):
        path.touch()
    os.utime(left, (0, 0))
    assert unfinished_writes(str(tmp_path)) == [left]
    assert unfinished_writes(str(tmp_path / "none")) == unfinished_writes("s3://bucket/prefix") == []
