"""CPU time and memory of what a benchmark has started: what other programs do meanwhile doesn't count."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
SET_CHILD_SUBREAPER = 36


@contextmanager
def adopted_orphans() -> Iterator[None]:
    """Adopt the processes that a launcher leaves behind, so that their time counts as this process's."""
    libc = ctypes.CDLL(None)
    libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def cpu_seconds() -> float:
    """Used so far by this process and all below it, with those of their children that have ended."""
    return sum(sum(map(int, status[11:15])) for status in _below().values()) / TICKS


def memory_bytes(root: int | None = None) -> int:
    """Used by a process, by default this one, and all below it; pages that several share count once."""
    return sum(map(_proportional_bytes, _below(root)))


def _below(root: int | None = None) -> dict[int, list[str]]:
    """Process -> the fields of its status, of `root`, by default this process, and all below it."""
    root = root or os.getpid()
    found = {
        int(process.name): status
        for process in Path("/proc").iterdir()
        if process.name.isdigit() and (status := _status(process)) is not None
    }
    return {process: status for process, status in found.items() if _is_below(process, found, root)}


def _is_below(process: int, found: dict[int, list[str]], root: int) -> bool:
    while process in found and process != root:
        process = int(found[process][1])
    return process == root


def _status(process: Path) -> list[str] | None:
    """The fields after the name, which may hold anything."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _proportional_bytes(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
