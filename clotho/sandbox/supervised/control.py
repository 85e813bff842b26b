"""The host's side of a supervisor's control directory: its incarnation, its deadline, and its entries.

Everything here blocks for the time of a few file operations, and holds no state. The layout is described in
supervisor/supervisor.c. Entries are staged whole, by rename.
"""

import errno
import fcntl
import itertools
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from clotho.errors import SandboxLost, SandboxUnavailable
from clotho.sandbox.exhaustion import is_full

SMALL_BYTES = 64 << 10
PIECE_BYTES = 1 << 20
HOST_ROOM_BYTES = 16 << 20
"""Left on the disk under the sandboxes: with less, no command is started on this host, since what it would write
could be lost."""

KEY = re.compile("[0-9a-f]{32}")
StrPath = str | Path
NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
NO_FILE = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO})

_unfinished = itertools.count()


class ControlDirectory:
    """`owner` is the user whom staged entries are given to, None where supervisor and host are the same user.

    `group` is the one of the commands, which read what they are given of them; it has the owner's number otherwise.
    """

    def __init__(self, path: Path, owner: int | None, group: int | None = None) -> None:
        self.path = path
        self.owner = owner
        self.group = owner if group is None else group
        self.jobs = path / "c"
        self.transfers = path / "f"
        self.sessions = path / "sessions"

    def create(self) -> None:
        with self.room():
            for folder in (self.path, self.jobs, self.transfers, self.sessions):
                folder.mkdir(mode=0o700, parents=True)
                self._give(folder)

    def remove(self) -> None:
        shutil.rmtree(self.path)

    @property
    def alive_file(self) -> Path:
        return self.path / "alive"

    # ---- the supervisor ----

    def incarnation(self) -> str | None:
        """Id of the live supervisor, which holds the lock; None without one. A process id proves nothing."""
        with suppress(FileNotFoundError), opened(f"{self.path}/alive") as alive:
            try:
                fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return os.read(alive, 64).decode(errors="replace").strip()
        return None

    def was_started(self) -> bool:
        """Whether a supervisor ever lived here."""
        return size_of(self.alive_file) > 0

    def renew(self, seconds: float) -> None:
        """Lease for `seconds` from now; the host's own deadline goes by the time of a file."""
        self.say("lease", str(max(1, round(seconds))))
        self.set_deadline(seconds)

    def set_deadline(self, seconds: float) -> None:
        """Raises SandboxLost where there is no such directory any more."""
        file, end = self.path / "deadline", time.time() + seconds
        try:
            file.touch()
            os.utime(file, (end, end))
        except FileNotFoundError:
            raise SandboxLost("the sandbox was destroyed") from None

    def deadline(self) -> float:
        """Unix seconds."""
        return (self.path / "deadline").stat().st_mtime

    def sealed(self) -> bool:
        return exists(f"{self.path}/sealed")

    def say(self, *words: str) -> None:
        """Send a request. Raises SandboxLost where the supervisor is gone."""
        try:
            queue = os.open(f"{self.path}/q", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT):
                raise SandboxLost("the sandbox's supervisor is gone") from None
            raise
        try:
            os.write(queue, f"{' '.join(words)}\n".encode())
        except BrokenPipeError:  # it ended just now
            raise SandboxLost("the sandbox's supervisor is gone") from None
        except BlockingIOError:
            raise SandboxUnavailable("the sandbox's supervisor doesn't take requests") from None
        finally:
            os.close(queue)

    # ---- the disk that the outputs of commands go to, too ----

    def require_room(self) -> None:
        """Raises SandboxLost where commands have filled it: no supervisor could serve them any more.

        Raises SandboxUnavailable where the host's own disk, on which that of the sandbox grows, is full.
        """
        if self._on_disk_of_its_own() and is_full(self.path.parent):
            raise self._without_room()
        if self._host_is_full():
            raise self._host_without_room()

    @contextmanager
    def room(self) -> Iterator[None]:
        """For what is written here."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise self._without_room() from error
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise SandboxLost("the sandbox was destroyed") from error
            raise

    def _without_room(self) -> Exception:
        if self._on_disk_of_its_own() and not self._host_is_full():
            return SandboxLost("the sandbox's disk was filled by the output of its commands", "disk")
        return self._host_without_room()

    def _host_is_full(self) -> bool:
        status = os.statvfs(self.path.parent.parent)
        least = min(HOST_ROOM_BYTES, status.f_blocks * status.f_frsize // 8)
        return status.f_bavail * status.f_frsize < least

    def _host_without_room(self) -> SandboxUnavailable:
        return SandboxUnavailable("the disk on which this host has its sandboxes is full")

    def _on_disk_of_its_own(self) -> bool:
        folder = self.path.parent
        return os.stat(folder).st_dev != os.stat(folder.parent).st_dev

    # ---- staging ----

    def stage(self, parent: Path, key: str, entries: Mapping[str, bytes], fifo: str | None = None) -> bool:
        """Returns False where `key` was staged before."""
        unfinished = f"{parent}/{unfinished_name(key)}"
        with self.room():
            try:
                os.mkdir(unfinished, 0o700)
                for name, content in entries.items():
                    self.write(f"{unfinished}/{name}", content)
                if fifo is not None:
                    os.mkfifo(f"{unfinished}/{fifo}", 0o600)
                    self._give(f"{unfinished}/{fifo}")
                self._give(unfinished)
                os.rename(unfinished, f"{parent}/{key}")
            except FileNotFoundError:
                raise SandboxLost("the sandbox was destroyed") from None
            except OSError as error:
                shutil.rmtree(unfinished, ignore_errors=True)
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return False
                raise
        return True

    def write(self, path: StrPath, content: bytes) -> None:
        with open(path, "xb", buffering=0) as file:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[file.write(remaining) :]
            if self.owner is not None and self.group is not None:
                os.fchmod(file.fileno(), 0o640)
                os.fchown(file.fileno(), self.owner, self.group)

    def _give(self, path: StrPath) -> None:
        if self.owner is not None and self.group is not None:
            os.chown(path, self.owner, self.group)


def unfinished_name(name: str) -> str:
    """For what gets `name` once it is whole. No two writers use the same."""
    return f".{name}.{os.getpid()}.{next(_unfinished)}"


def names_in(folder: Path) -> list[str]:
    """Keys of the entries there, sorted; what is being staged has no such name. Raises SandboxLost."""
    try:
        return sorted(filter(KEY.fullmatch, os.listdir(folder)))
    except FileNotFoundError:
        raise SandboxLost("the sandbox was destroyed") from None


@contextmanager
def opened(path: StrPath) -> Iterator[int]:
    """A descriptor for reading. Nothing that commands do to the file may hold us up: a lease on it, another kind.

    Raises SandboxLost for what is no file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in NO_FILE:
            raise damaged(path) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise damaged(path)
        yield descriptor
    finally:
        os.close(descriptor)


def damaged(path: StrPath) -> SandboxLost:
    """The error for a control file whose content is damaged."""
    return SandboxLost(f"the sandbox's control file {'/'.join(Path(path).parts[-3:])} is damaged")


def text_of(path: StrPath) -> str | None:
    """The text of a small file, None where there is none."""
    try:
        return start_of(path, SMALL_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None


def start_of(path: StrPath, limit: int, offset: int = 0) -> bytes:
    """At most `limit` bytes: a file that commands have had open may have been made as long as they like."""
    parts: list[bytes] = []
    with opened(path) as descriptor:
        while limit > 0 and (part := os.pread(descriptor, min(limit, PIECE_BYTES), offset)):
            parts.append(part)
            limit -= len(part)
            offset += len(part)
    return b"".join(parts)


def size_of(path: StrPath) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def exists(path: StrPath) -> bool:
    """Like Path.exists, without its cost of making paths."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno in NOT_THERE:
            return False
        raise
    return True
