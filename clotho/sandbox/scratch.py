"""Folders for archives between sandboxes and the store; a process that is killed leaves none for long."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "clotho-scratch-"


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder, which is gone afterwards."""
    folder, lock = _made()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(lock)


def reap_scratch() -> None:
    """Delete the folders of processes that have died: nobody holds the lock on them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it has just gone, or is somebody else's
            if (lock := _locked(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _made() -> tuple[Path, int]:
    """Another process may take a new folder for a dead one's until it is locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        with suppress(FileNotFoundError):
            if (lock := _locked(folder)) is not None:
                if folder.exists():
                    return folder, lock
                os.close(lock)


def _locked(folder: Path) -> int | None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
