"""What only a store in a folder can run into."""

import subprocess
from pathlib import Path

import pytest

from clotho.errors import InvalidInput, StoreUnavailable
from clotho.store.filesystem import FilesystemStore


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
