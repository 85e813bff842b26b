"""CPU time of everything that a benchmark has started: what other programs do meanwhile doesn't count."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Used so far by this process and all below it, with those of their children that have ended."""
    used: dict[int, tuple[int, float]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and (status := _status(process)) is not None:
            ticks = sum(map(int, status[11:15]))
            used[int(process.name)] = (int(status[1]), ticks / TICKS)
    return sum(seconds for process, (_, seconds) in used.items() if _is_below(process, used))


def _is_below(process: int, used: dict[int, tuple[int, float]]) -> bool:
    while process in used and process != os.getpid():
        process, _ = used[process]
    return process == os.getpid()


def _status(process: Path) -> list[str] | None:
    """The fields after the name, which may hold anything."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
