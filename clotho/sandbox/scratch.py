"""Files for archives between sandboxes and the store; a process that is killed leaves none for long."""

import atexit
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

PREFIX = "clotho-scratch-"


@contextmanager
def scratch() -> Iterator[Path]:
    """A path where nothing is yet; the file that the caller writes there is deleted afterwards."""
    path = _own_folder() / secrets.token_hex(16)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder, which is gone afterwards with what is in it."""
    with tempfile.TemporaryDirectory(dir=_own_folder()) as name:
        yield Path(name)


def reap_scratch() -> None:
    """Delete the folders of dead processes, whose locks are free."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it has just gone, or is another user's
            if (lock := _locked(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _own_folder() -> Path:
    """This process' folder for all of its files, made when first needed, and again if something deleted it."""
    folder = _made()
    if not folder.exists():
        _made.cache_clear()
        folder = _made()
    return folder


@cache
def _made() -> Path:
    """Make a folder and lock it. Before that, another process takes it for a dead one's and may delete it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with suppress(FileNotFoundError):
            if (lock := _locked(folder)) is not None:
                # the descriptor stays open: the lock lasts as long as this process, and tells others that it lives
                if folder.exists():
                    return folder
                os.close(lock)


def _locked(folder: Path) -> int | None:
    # anybody may write to /tmp: a link by that name could lead to any folder
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
