"""The control directory of a supervisor on this host.

Everything blocks for the time of a few file operations, and holds no state. Entries are staged whole, by rename.
"""

import asyncio
import errno
import fcntl
import itertools
import os
import select
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import SandboxLost, SandboxUnavailable
from clotho.sandbox.exhaustion import is_full
from clotho.sandbox.supervised import files
from clotho.sandbox.supervised.interface import JOBS, SESSIONS, TRANSFERS, Pipe, fence_mark
from clotho.sandbox.supervised.watches import Watches

# the largest pipe that Linux allows an ordinary user by default
PIPE_BYTES = 1 << 20
HOST_ROOM_BYTES = 16 << 20
"""Left on the disk under the sandboxes: with less, no command is started on this host, since what it would write
could be lost."""

_unfinished = itertools.count()


class ControlDirectory:
    """`owner` is the user who gets staged entries, None where supervisor and host are the same user.

    `group` is that of the commands, which may read entries; without one it has the owner's number.
    """

    def __init__(self, path: Path, owner: int | None, group: int | None = None) -> None:
        self.path = path
        self.owner = owner
        self.group = owner if group is None else group

    @property
    def name(self) -> str:
        return str(self.path)

    def create(self) -> None:
        with self.room():
            for folder in (self.path, *(self.path / each for each in (JOBS, TRANSFERS, SESSIONS))):
                folder.mkdir(mode=0o700, parents=True)
                self._give(folder)

    def delete(self) -> None:
        files.delete_written(self.path)

    @property
    def alive_file(self) -> Path:
        return self.path / "alive"

    # ---- the supervisor ----

    def incarnation(self) -> str | None:
        with suppress(FileNotFoundError), files.opened(f"{self.path}/alive") as alive:
            try:
                # The supervisor holds this lock for as long as it lives. A stored process id would tell of
                # any process that has got the number since.
                fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return os.read(alive, 64).decode(errors="replace").strip()
        return None

    def was_started(self) -> bool:
        return files.size_of(self.alive_file) > 0

    def renew(self, seconds: float) -> None:
        """Lease for `seconds` from now. The host keeps a deadline of its own, as a file's time of change."""
        self.say("lease", str(max(1, round(seconds))))
        self.set_deadline(seconds)

    def set_deadline(self, seconds: float) -> None:
        """Raises SandboxLost where there is no such directory any more."""
        self.touch("deadline", time.time() + seconds)

    def deadline(self) -> float:
        """Unix seconds."""
        return self.changed("deadline")

    def sealed(self) -> bool:
        return self.exists("sealed")

    def say(self, *words: str) -> None:
        try:
            # Without waiting, the kernel refuses to open a FIFO that nobody reads: that is how its death is
            # known.
            queue = os.open(f"{self.path}/q", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT):
                raise SandboxLost("the sandbox's supervisor is gone") from None
            raise
        try:
            # One write below PIPE_BUF is atomic: requests of several workers don't mix.
            os.write(queue, f"{' '.join(words)}\n".encode())
        except BrokenPipeError:  # it ended just now
            raise SandboxLost("the sandbox's supervisor is gone") from None
        except BlockingIOError:
            raise SandboxUnavailable("the sandbox's supervisor doesn't take requests") from None
        finally:
            os.close(queue)

    # ---- the disk that the outputs of commands go to, too ----

    def require_room(self) -> None:
        if self._on_disk_of_its_own() and is_full(self.path.parent):
            raise self._without_room()
        if self._host_is_full():
            raise self._host_without_room()

    @contextmanager
    def room(self) -> Iterator[None]:
        """Turn a failed write to the directory into its cause: whose disk is full, or that the sandbox is gone."""
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
        # of a small disk an eighth is enough: it would count as full for ever
        least = min(HOST_ROOM_BYTES, status.f_blocks * status.f_frsize // 8)
        return status.f_bavail * status.f_frsize < least

    def _host_without_room(self) -> SandboxUnavailable:
        return SandboxUnavailable("the disk on which this host has its sandboxes is full")

    def _on_disk_of_its_own(self) -> bool:
        return os.stat(self.path.parent).st_dev != os.stat(self.path.parent.parent).st_dev

    # ---- staging ----

    def stage(self, folder: str, key: str, entries: Mapping[str, bytes], fifo: str | None = None) -> bool:
        unfinished = f"{self.path}/{folder}/{_unfinished_name(key)}"
        with self.room():
            try:
                os.mkdir(unfinished, 0o700)
                for name, content in entries.items():
                    self.write(f"{unfinished}/{name}", content)
                if fifo is not None:
                    os.mkfifo(f"{unfinished}/{fifo}", 0o600)
                    self._give(f"{unfinished}/{fifo}")
                self._give(unfinished)
                # A folder is renamed onto an empty one only: of two workers that stage a key, the first one's
                # stays.
                os.rename(unfinished, f"{self.path}/{folder}/{key}")
            except FileNotFoundError:
                raise SandboxLost("the sandbox was destroyed") from None
            except OSError as error:
                shutil.rmtree(unfinished, ignore_errors=True)
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return False
                raise
        return True

    def submit(self, key: str, entries: Mapping[str, bytes], fence: int = 0) -> bool:
        if self.sealed():
            raise SandboxLost("the sandbox was sealed for verification: it runs no more commands")
        # The entry stays when the request below is lost: a later attempt finds it, and asks again.
        if self.exists(f"{JOBS}/{key}") or not self.stage(JOBS, key, entries):
            return False
        # the supervisor drops a start for which its disk has no room, without an answer
        self.require_room()
        self.say("run", key, *fence_mark(fence))
        return True

    def place(self, path: str, content: bytes) -> None:
        with self.room():
            os.rename(self._written_beside(path, content), f"{self.path}/{path}")

    def publish(self, path: str, content: bytes) -> None:
        with self.room():
            unfinished = self._written_beside(path, content)
            # link, not rename: of several that publish, the first one's stays
            with suppress(FileExistsError):
                os.link(unfinished, f"{self.path}/{path}")
            os.unlink(unfinished)

    def _written_beside(self, path: str, content: bytes) -> str:
        folder, _, name = path.rpartition("/")
        unfinished = f"{self.path}/{folder}/{_unfinished_name(name)}"
        self.write(unfinished, content)
        return unfinished

    def write(self, path: files.StrPath, content: bytes) -> None:
        with open(path, "xb", buffering=0) as file:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[file.write(remaining) :]
            if self.owner is not None and self.group is not None:
                # the mode of a new file is cut by the worker's umask
                os.fchmod(file.fileno(), 0o640)
                os.fchown(file.fileno(), self.owner, self.group)

    def _give(self, path: files.StrPath) -> None:
        if self.owner is not None and self.group is not None:
            os.chown(path, self.owner, self.group)

    def touch(self, path: str, changed: float | None = None) -> None:
        file = self.path / path
        with self.room():
            # until the time is set, a deadline is now: reapers wait for a grace beyond it
            file.touch()
            if changed is not None:
                os.utime(file, (changed, changed))

    def make_readable(self, path: str) -> None:
        os.chmod(f"{self.path}/{path}", 0o600)

    def remove(self, path: str) -> None:
        try:
            os.unlink(f"{self.path}/{path}")
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            shutil.rmtree(f"{self.path}/{path}", ignore_errors=True)

    # ---- reading ----

    def keys(self, folder: str) -> list[str]:
        try:
            # what is being staged begins with a dot, and is no key
            return sorted(filter(files.KEY.fullmatch, os.listdir(f"{self.path}/{folder}")))
        except FileNotFoundError:
            raise SandboxLost("the sandbox was destroyed") from None

    def look(self, *paths: str) -> tuple[str | None, Sequence[str | None]]:
        incarnation = self.incarnation()
        return incarnation, [self.text_of(path) for path in paths]

    def text_of(self, path: str) -> str | None:
        return files.text_of(f"{self.path}/{path}")

    def start_of(self, path: str, limit: int, offset: int = 0) -> bytes:
        return files.start_of(f"{self.path}/{path}", limit, offset)

    def size_of(self, path: str) -> int:
        return files.size_of(f"{self.path}/{path}")

    def exists(self, path: str) -> bool:
        return files.exists(f"{self.path}/{path}")

    def changed(self, path: str) -> float:
        return os.stat(f"{self.path}/{path}").st_mtime

    # ---- waiting ----

    @contextmanager
    def watching(self, event: asyncio.Event, *paths: str) -> Iterator[float]:
        watches = Watches.of_running_loop()
        with ExitStack() as stack:
            recheck = stack.enter_context(watches.closing(self.alive_file, event))
            for path in paths:
                file = self.path / path
                recheck = min(recheck, stack.enter_context(watches.entry(file.parent, file.name, event)))
            yield recheck

    @contextmanager
    def growing(self, event: asyncio.Event, path: str) -> Iterator[float]:
        with Watches.of_running_loop().growing(self.path / path, event) as recheck:
            yield recheck

    @contextmanager
    def pipe(self, path: str, *, writing: bool) -> Iterator[Pipe]:
        flags = os.O_WRONLY if writing else os.O_RDONLY
        # a plain open of a FIFO would wait for the other side, which may never come
        descriptor = os.open(f"{self.path}/{path}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT if writing else select.POLLIN)
            yield FilePipe(descriptor, poll)
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class FilePipe:
    """An end of a FIFO of this host."""

    _descriptor: int
    _poll: select.poll

    def ready(self, milliseconds: int) -> bool:
        return bool(self._poll.poll(milliseconds))

    def read(self, limit: int) -> bytes:
        return os.read(self._descriptor, limit)

    def write(self, content: memoryview) -> int:
        try:
            return os.write(self._descriptor, content)
        except BlockingIOError:
            return 0


def _unfinished_name(name: str) -> str:
    """A temporary name for what gets `name` once it is whole. No two writers draw the same."""
    return f".{name}.{os.getpid()}.{next(_unfinished)}"
