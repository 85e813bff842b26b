"""Identity of a process that survives reuse of its pid."""

import os
import platform
from dataclasses import dataclass
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
        seen = _look(self.pid)
        return seen is not None and seen.began == self.began and seen.state not in ENDED

    @classmethod
    def here(cls, since: float) -> "ProcessIdentity":
        """This process."""
        return cls.of(os.getpid(), since)

    @classmethod
    def of(cls, pid: int, since: float) -> "ProcessIdentity":
        """A process of this machine."""
        seen = _look(pid)
        return cls(
            host=platform.node(),
            pid=pid,
            numbering=_numbering() if seen is not None else "",
            began=seen.began if seen is not None else 0,
            since=since,
        )


@dataclass(frozen=True)
class _Seen:
    state: str
    began: int


def _look(pid: int) -> _Seen | None:
    """Process `pid` as /proc shows it; None where it doesn't."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name before the last parenthesis may hold anything.
    fields = stat.rpartition(")")[2].split()
    return _Seen(state=fields[0], began=int(fields[19]))


def _numbering() -> str:
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
