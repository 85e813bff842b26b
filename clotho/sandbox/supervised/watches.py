"""Waits for entries to appear in directories, with one inotify descriptor for each event loop and no thread.

The kernel bounds a user's instances and watches, and other programs may have used them up: a waiter is told how
soon to look by itself.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

MODIFY = 0x0000_0002
CLOSE_WRITE = 0x0000_0008
MOVED_TO = 0x0000_0080
CREATE = 0x0000_0100
OVERFLOW = 0x0000_4000
MASK_ADD = 0x2000_0000

_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


RECHECK_SECONDS = 5.0
"""Seconds after which a waiter looks by itself, should an event have been missed."""
POLL_SECONDS = 0.05
"""Seconds after which it does where nothing can be watched."""


class Watches:
    """The waits of one event loop. Their descriptor stays open as long as it: closing one costs 10 ms."""

    _of_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, Watches]" = WeakKeyDictionary()

    def __init__(self) -> None:
        self._descriptor = -1
        self._waiting: dict[int, set[tuple[asyncio.Event, bytes]]] = {}

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _open(self) -> bool:
        """Open the descriptor; until that succeeds, every waiter tries again."""
        if self._descriptor < 0:
            self._descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            if self._descriptor >= 0:
                asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        return self._descriptor >= 0

    @classmethod
    def of_running_loop(cls) -> "Watches":
        loop = asyncio.get_running_loop()
        if loop not in cls._of_loop:
            cls._of_loop[loop] = cls()
        return cls._of_loop[loop]

    @contextmanager
    def entry(self, directory: Path, name: str, event: asyncio.Event) -> Iterator[float]:
        """Set `event` when `name` appears in `directory`, complete: made by link(2) or rename(2).

        Yields the seconds after which to look all the same.
        """
        with self._watch(directory, CREATE | MOVED_TO, name.encode(), event) as recheck:
            yield recheck

    @contextmanager
    def closing(self, file: Path, event: asyncio.Event) -> Iterator[float]:
        """Set `event` when a process that has `file` open for writing closes it, or dies; yields as `entry`."""
        with self._watch(file, CLOSE_WRITE, b"", event) as recheck:
            yield recheck

    @contextmanager
    def growing(self, file: Path, event: asyncio.Event) -> Iterator[float]:
        """Set `event` when something is written to `file`; yields as `entry`."""
        with self._watch(file, MODIFY, b"", event) as recheck:
            yield recheck

    @contextmanager
    def _watch(self, path: Path, mask: int, name: bytes, event: asyncio.Event) -> Iterator[float]:
        watch = -1
        if self._open():
            # The kernel has one watch for a file and instance: without MASK_ADD a second waiter would take
            # the first one's events away.
            watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask | MASK_ADD)
        if watch < 0:
            yield POLL_SECONDS
            return
        waiting = self._waiting.setdefault(watch, set())
        waiting.add((event, name))
        try:
            yield RECHECK_SECONDS
        finally:
            waiting.remove((event, name))
            if not waiting:
                del self._waiting[watch]
                # refused where the file is gone, and its watch with it: nothing is left to do then
                _libc.inotify_rm_watch(self._descriptor, watch)

    def _read(self) -> None:
        events = os.read(self._descriptor, 65_536)
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            name = events[at - length : at].rstrip(b"\0")
            # The queue is bounded: after an overflow nobody knows whose event was dropped, so all look.
            lost = mask & OVERFLOW
            for waiting in self._waiting.values() if lost else (self._waiting.get(watch, set()),):
                for event, wanted in waiting:
                    if lost or wanted == name:
                        event.set()
