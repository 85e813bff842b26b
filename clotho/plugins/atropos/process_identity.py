"""Identity of a process that survives reuse of its pid."""

import os
import platform
from pathlib import Path

from clotho.frozen_model import FrozenModel

ENDED = frozenset("ZX")
"""States of processes that are dead and not yet reaped."""


class ProcessIdentity(FrozenModel):
    """A process that holds a lock."""

    host: str
    pid: int
    numbering: str
    """Boot and process namespace of `pid`; empty where the system doesn't say."""
    began: int
    """Clock ticks after that boot."""
    since: float
    """Unix seconds at which it took hold."""

    def lives(self) -> bool | None:
        """Whether the process lives; None if that can't be told from here."""
        if not self.numbering or self.numbering != _numbering():
            return None
        state, began = _look(self.pid) or ("X", 0)
        return began == self.began and state not in ENDED

    @classmethod
    def of(cls, pid: int, since: float) -> "ProcessIdentity":
        """A process of this machine."""
        seen = _look(pid)
        numbering, began = (_numbering(), seen[1]) if seen is not None else ("", 0)
        return cls(host=platform.node(), pid=pid, numbering=numbering, began=began, since=since)


def _look(pid: int) -> tuple[str, int] | None:
    """State and beginning of process `pid` as /proc shows them; None where it doesn't."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name before the last parenthesis may hold anything.
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _numbering() -> str:
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
