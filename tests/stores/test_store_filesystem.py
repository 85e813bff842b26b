"""What only a store in a folder can run into."""

import asyncio
import multiprocessing
import subprocess
from pathlib import Path

import pytest

from clotho.errors import InvalidInput, StoreUnavailable
from clotho.store.filesystem import FilesystemStore
from tests.support import eventually


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
