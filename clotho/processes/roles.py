"""Roles of worker processes, and the numbered slot of its host that each process holds."""

import fcntl
import os
from itertools import count
from pathlib import Path

from clotho.errors import InvalidInput

ROLES = ("workflows", "llm", "tools")
MOST_PROCESSES = 4


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def workers_by_default() -> int:
    """The worker processes that this host has by default: one a processor, up to four."""
    return min(processors(), MOST_PROCESSES)


def process_layout(roles: str | None, processes: int | None) -> list[tuple[str, ...]]:
    """The roles of each process: all by default, since a step costs least where its workflow is."""
    if roles is None:
        return [ROLES] * (processes or workers_by_default())
    named = tuple(roles.split(","))
    for role in named:
        if role not in ROLES:
            raise InvalidInput(f"unknown role {role!r}: there are {', '.join(ROLES)}")
    return [named] * (processes or 1)


class ProcessSlot:
    """A number that no other living process of this host holds under `folder`, by a file lock."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for number in count():
            # O_CLOEXEC: a child that inherited the lock would hold the slot beyond this process's end
            descriptor = os.open(folder / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            # never closed: the kernel frees the slot when the process ends, however it does
            self._descriptor = descriptor
            self.number = number
            return
