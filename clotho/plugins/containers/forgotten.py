"""Processes that podman started for a container and doesn't know: it died before it had noted them."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

WATCHER = b"conmon"


def end_forgotten(container: str) -> None:
    """Kill what watches the container of this name, and what waits in it to become its first process."""
    for watcher in _processes():
        if _watches(watcher, container):
            # first: children of a watcher that is gone have another parent
            _end_watched(watcher)
            _kill(watcher, lambda process: _watches(process, container))


def _end_watched(watcher: Path) -> None:
    for child in _processes():
        if _parent(child) == watcher.name:
            _kill(child, lambda process: _parent(process) == watcher.name)


def _processes() -> Iterator[Path]:
    return (Path(entry.path) for entry in os.scandir("/proc") if entry.name.isdigit())


def _watches(process: Path, container: str) -> bool:
    try:
        program, *arguments = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return program.endswith(WATCHER) and (b"-n", container.encode()) in pairwise(arguments)


def _parent(process: Path) -> str:
    try:
        # from the last bracket on: the program's name, in brackets, may hold any character
        return (process / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return ""


def _kill(process: Path, still: Callable[[Path], bool]) -> None:
    """Kill a process if it is `still` what was looked for, once its id can't become another's."""
    with suppress(ProcessLookupError, PermissionError):
        held = os.pidfd_open(int(process.name))
        try:
            if still(process):
                signal.pidfd_send_signal(held, signal.SIGKILL)
        finally:
            os.close(held)
