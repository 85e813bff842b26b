"""Detection of the resource that a command used up, from the kernel's counters and the sandbox's disk."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

Exhausted = Literal["memory", "processes", "disk"]


class Evidence(StrEnum):
    """Ways for commands to end their sandbox that a backend can tell from its host's doing.

    A full disk is none of them: no backend loses a sandbox to one without saying so.
    """

    MEMORY = "memory"
    """The kernel's count of the processes that it ended for memory can be read when the sandbox has ended."""
    SIGNALS = "signals"
    """Commands can't signal the supervisor: whatever kills it is of the host."""


FULL_BYTES = 64 << 10
COUNTERS_BYTES = 4 << 10
"""More than a file of a control group holds."""
FILE_SIZE_SIGNAL = 128 + 25
"""Exit code of what was ended by SIGXFSZ: it wrote to a file of the largest size allowed."""


@dataclass(frozen=True)
class Usage:
    """Counters of a sandbox's control groups, which only ever rise."""

    oom_kills: int
    most_processes: int

    def __str__(self) -> str:
        return f"{self.oom_kills} {self.most_processes}\n"

    @classmethod
    def parse(cls, text: str) -> "Usage":
        """Raises ValueError."""
        kills, processes = map(int, text.split())
        return cls(kills, processes)


@dataclass(frozen=True)
class Bounds:
    """The resource bounds of one sandbox."""

    groups: Sequence[Path]
    """The control groups that count its use."""
    max_processes: int
    disk: Path | None
    """Mount point of the sandbox's own disk, if it has one."""

    def usage(self) -> Usage:
        kills = [_counter(f"{group}/{name}", "oom_kill") for group in self.groups for name in OOM_FILES]
        peaks = [_number(f"{group}/pids.peak") for group in self.groups]
        return Usage(max(kills, default=0), max(peaks, default=0))

    @property
    def counts_memory(self) -> bool:
        """Whether the kernel counts the processes of this sandbox that it ends for memory."""
        return any("oom_kill" in _text(f"{group}/{name}") for group in self.groups for name in OOM_FILES)

    def exhausted_since(self, before: Usage, exit_code: int | None) -> Exhausted | None:
        """The resource that a failed command exhausted. A limit on processes shows only when it is first met."""
        now = self.usage()
        if now.oom_kills > before.oom_kills:
            return "memory"
        if exit_code == FILE_SIZE_SIGNAL or (self.disk is not None and is_full(self.disk)):
            return "disk"
        # a peak only rises: the first command that meets the limit is the only one it tells of
        if before.most_processes < self.max_processes <= now.most_processes:
            return "processes"
        return None


def is_full(disk: Path) -> bool:
    status = os.statvfs(disk)
    # a disk without inodes takes no file, whatever room it has
    return status.f_bavail * status.f_frsize < FULL_BYTES or status.f_favail == 0


OOM_FILES = ("memory.events", "memory.oom_control")


def _counter(file: str, name: str) -> int:
    lines = (line.split() for line in _text(file).splitlines())
    return next((int(value) for key, value in lines if key == name), 0)


def _number(file: str) -> int:
    return int(_text(file) or 0)


def _text(file: str) -> str:
    """Empty where this kernel, or this kind of control group, has no such file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        return os.read(descriptor, COUNTERS_BYTES).decode()
    finally:
        os.close(descriptor)
