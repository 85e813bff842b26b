"""Starting sandboxes where few mounts are: in a thread with mounts of its own, without those of other sandboxes.

bubblewrap copies the table of mounts that it begins with, and reads it for each mount that it makes. In the host's
own table, with hundreds of sandboxes alive, that costs several times what a sandbox costs otherwise. Sandboxes see
the mounts in `/usr` and the like that were there when their worker made its first sandbox.
"""

import ctypes
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from clotho.sandbox.local.mounts import DETACH, SHORTAGES

T = TypeVar("T")

CLONE_NEWNS = 0x20000
RECURSIVE, PRIVATE = 0x4000, 0x40000
OPEN_TREE, MOVE_MOUNT = 428, 429
CLONE, EMPTY_PATH, HERE = 0x1, 0x4, -100
SEEN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/dev", "/sys")
"""Whatever is mounted in these stays."""

log = logging.getLogger("clotho")
_libc = ctypes.CDLL(None, use_errno=True)


# Measured with 2,000 mounts on the host: bubblewrap takes 48 ms among them, and 5.5 ms in a namespace that
# was made before them.
class Apart:
    """One thread, from the first use on: it has the host's mounts on the way to `paths`, and those in SEEN."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)

    @cached_property
    def _thread(self) -> ThreadPoolExecutor | None:
        """None where this process may have no mounts of its own."""
        # unshare(2) gives mounts of its own to the calling thread alone: the rest of the worker keeps the
        # host's.
        thread = ThreadPoolExecutor(1, thread_name_prefix="sandbox-starts")
        try:
            thread.submit(_leave, self._paths).result()
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            log.info("sandboxes are started among all mounts of this host: %s", error)
            return None
        return thread

    @contextmanager
    def with_mount(self, place: Path, seen: Sequence[Path] = ()) -> Iterator[Callable[[Callable[[], T]], T]]:
        """Attach the mount at `place` meanwhile. Yields a function that calls another one in the thread.

        If the thread lacks a mount that a folder in `seen` needs, that is done among all of the host's mounts.
        """
        thread = self._thread
        if thread is None or not _sees(thread, seen) or not _attached(thread, place):
            yield lambda function: function()
            return
        # taken away in any case: held by this thread, a disk would outlive its sandbox
        try:
            yield lambda function: thread.submit(function).result()
        finally:
            thread.submit(_detach, place).result()


def _sees(thread: ThreadPoolExecutor, folders: Sequence[Path]) -> bool:
    """Whether the thread has all that is in these folders here."""
    if not folders:
        return True
    mounted = _places(Path("/proc/self/mountinfo").read_bytes())
    if any(place.is_relative_to(folder.resolve()) for place in mounted for folder in folders):
        return False
    try:
        there = thread.submit(lambda: [folder.stat() for folder in folders]).result()
    except FileNotFoundError:  # below a mount that the thread has left
        return False
    return all(map(os.path.samestat, there, (folder.stat() for folder in folders)))


def _attached(thread: ThreadPoolExecutor, place: Path) -> bool:
    """Attach the mount at `place` in the thread; False where that has another file system at this path."""
    # Paths mean other mounts in the thread. A cloned mount crosses between the two as a descriptor.
    tree = _libc.syscall(OPEN_TREE, HERE, os.fsencode(place), CLONE | os.O_CLOEXEC)
    if tree < 0:
        return False
    try:
        thread.submit(_attach, tree, place, os.stat(place.parent)).result()
    except OSError as error:
        log.info("a sandbox is started among all mounts of this host: %s", error)
        return False
    finally:
        os.close(tree)
    return True


def _leave(paths: tuple[Path, ...]) -> None:
    """Give this thread mounts of its own and drop those it doesn't need, so that it keeps no disk in use."""
    _checked(_libc.unshare(CLONE_NEWNS))
    # Private before anything is taken away: systemd shares `/`, and unmounting here would unmount on the
    # host.
    _checked(_libc.mount(None, b"/", None, RECURSIVE | PRIVATE, None))
    to = [*paths, *(path.resolve() for path in paths)]
    for place in reversed(_places(Path("/proc/thread-self/mountinfo").read_bytes())):
        if not _is_needed(place, to):
            with suppress(OSError):  # it went with the one below it
                _detach(place)


def _is_needed(place: Path, to: Iterable[Path]) -> bool:
    """Whether `place` leads to one of `to` or is of the host's system; a sandbox's disk, below `to`, is neither."""
    if any(path.is_relative_to(place) for path in to):
        return True
    return any(map(place.is_relative_to, SEEN)) and not any(map(place.is_relative_to, to))


def _places(table: bytes) -> list[Path]:
    """Mount points in a mountinfo table, which writes blanks and the like in octal."""
    written = (line.split()[4] for line in table.splitlines())
    plain = (re.sub(rb"\\(\d{3})", lambda found: bytes([int(found[1], 8)]), each) for each in written)
    return [Path(os.fsdecode(each)) for each in plain]


def _attach(tree: int, place: Path, parent: os.stat_result) -> None:
    if not os.path.samestat(os.stat(place.parent), parent):
        raise OSError(f"{place.parent} was mounted later")
    _checked(_libc.syscall(MOVE_MOUNT, tree, b"", HERE, os.fsencode(place), EMPTY_PATH))


def _detach(place: Path) -> None:
    _checked(_libc.umount2(os.fsencode(place), DETACH))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
