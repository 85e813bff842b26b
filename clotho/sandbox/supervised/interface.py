"""The interface of a supervisor's control directory, wherever it is: on this host, or behind a relay.

Everything blocks but `watching`. Entries are named by their path in the directory, such as `c/KEY/done`: the layout
is described in supervisor/supervisor.c. What commands have damaged is SandboxLost, and so is a directory that is
gone; what isn't there is FileNotFoundError, unless a method says otherwise.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

JOBS, TRANSFERS, SESSIONS = "c", "f", "sessions"
"""The folders of the directory."""
FENCE = "fence"
"""The file with the lowest number that the supervisor still obeys; there is none before one was raised."""


def fence_mark(fence: int) -> tuple[str, ...]:
    """The last word of a request that is made under a fence; a supervisor takes one without it for 0."""
    return (f"#{fence}",) if fence else ()


class Pipe(Protocol):
    """An open end of a FIFO."""

    def ready(self, milliseconds: int) -> bool:
        """Whether something can be read or written, or the other side has gone, before the time is over."""

    def read(self, limit: int) -> bytes:
        """The next bytes, once it is ready; b"" when the other side has closed it."""

    def write(self, content: memoryview) -> int:
        """Returns how many bytes were taken, 0 for none now. Raises BrokenPipeError where nobody reads."""


class Control(Protocol):
    """A control directory."""

    @property
    def name(self) -> str:
        """For telling directories apart."""

    # ---- the supervisor ----

    def incarnation(self) -> str | None:
        """Id of the live supervisor, which holds the lock; None without one. A process id proves nothing."""

    def was_started(self) -> bool:
        """Whether a supervisor ever lived here."""

    def renew(self, seconds: float) -> None:
        """Lease for `seconds` from now."""

    def sealed(self) -> bool:
        """Whether commands have ended for good."""

    def say(self, *words: str) -> None:
        """Send a request. Raises SandboxLost where the supervisor is gone."""

    def require_room(self) -> None:
        """Raises SandboxLost where commands have filled the disk of the directory.

        Raises SandboxUnavailable where that under it is full, which is not theirs.
        """

    # ---- staging ----

    def stage(self, folder: str, key: str, entries: Mapping[str, bytes], fifo: str | None = None) -> bool:
        """Make an entry that appears whole. Returns False where `key` was staged before."""

    def submit(self, key: str, entries: Mapping[str, bytes], fence: int = 0) -> bool:
        """Stage a job and ask for its start under a fence; returns False where `key` was staged before.

        Raises SandboxLost where the directory is sealed.
        """

    def place(self, path: str, content: bytes) -> None:
        """Make a file that appears whole, or takes the place of another."""

    def publish(self, path: str, content: bytes) -> None:
        """Make a file that appears whole, unless there is one."""

    def touch(self, path: str, changed: float | None = None) -> None:
        """Make an empty file unless there is one, as changed at `changed` (Unix seconds)."""

    def make_readable(self, path: str) -> None:
        """Take back the rights to a file that a command has changed them of."""

    def remove(self, path: str) -> None:
        """Delete a file, or a folder and all that is in it, if it is there."""

    # ---- reading ----

    def keys(self, folder: str) -> list[str]:
        """Keys of the entries there, sorted; what is being staged has no such name. Raises SandboxLost."""

    def look(self, *paths: str) -> tuple[str | None, Sequence[str | None]]:
        """The live supervisor's incarnation, and then the texts of small files, looked at in that order."""

    def text_of(self, path: str) -> str | None:
        """The text of a small file, None where there is none."""

    def start_of(self, path: str, limit: int, offset: int = 0) -> bytes:
        """At most `limit` bytes: a file that commands have had open may have been made as long as they like."""

    def size_of(self, path: str) -> int:
        """0 for what isn't there."""

    def exists(self, path: str) -> bool: ...

    def changed(self, path: str) -> float:
        """Unix seconds."""

    # ---- waiting ----

    def watching(self, event: asyncio.Event, *paths: str) -> AbstractContextManager[float]:
        """Set `event` when an entry appears at one of `paths`, or the supervisor ends.

        Yields the seconds after which to look all the same.
        """

    def growing(self, event: asyncio.Event, path: str) -> AbstractContextManager[float]:
        """Set `event` when a file that is there grows; yields as `watching`."""

    def pipe(self, path: str, *, writing: bool) -> AbstractContextManager[Pipe]:
        """Open a FIFO: at once for reading, OSError for writing as long as nobody reads."""
