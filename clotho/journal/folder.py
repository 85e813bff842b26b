"""A store in a folder: a blob is a file, created atomically by link(2)."""

import asyncio
import itertools
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from clotho.errors import InvalidInput, StoreUnavailable
from clotho.host_failures import described, is_host_failure
from clotho.journal.store import Written, checked_key, checked_prefix

THREADS = 16
MOST_KNOWN_FOLDERS = 1_000
"""Folders that a store remembers to have made: each rollout has its own, and a worker sees millions."""
READ_BYTES = 1 << 16
TEMPORARY = ".tmp"
UNFINISHED_SECONDS = 24 * 3600.0
"""Age at which a temporary file belongs to a writer that was killed: a write takes seconds."""

Result = TypeVar("Result")


class FilesystemStore:
    """Blobs under `root`, shared by every process that can reach the folder.

    A blob is written to a file without a name, flushed to the disk, and linked to its name; then the folder is
    flushed. A reader sees a whole blob or none, after a power cut too. Where the file system has no files without
    names, it is written to a temporary one.

    All I/O is done in threads, by system calls without Python's files between: each one more waits for the
    interpreter's lock. Paths are strings, since each key is joined on the event loop.

    Raises InvalidInput where `root` can't be written, StoreUnavailable for what may pass (a full disk).
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._temporary = self._root / TEMPORARY
        self._names = itertools.count()
        self._token = secrets.token_hex(8)
        self._known_folders: set[str] = set()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store")
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._temporary.mkdir(mode=0o700, exist_ok=True)
            os.unlink(self._write_temporary(b""))
        except OSError as error:
            raise InvalidInput(f"store folder {self._root} can't be written: {error.strerror}") from error
        self._has_nameless = self._links_nameless()

    @property
    def identity(self) -> str:
        return filesystem_identity(self._root)

    async def create(self, key: str, body: bytes) -> bool:
        path = self._path(key)
        return await self._in_thread(lambda: self._create(path, body))

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        paths = [self._path(key) for key in keys]
        return await self._in_thread(lambda: [_read(path) for path in paths])

    async def keys(self, prefix: str) -> list[str]:
        folder = self._root / checked_prefix(prefix)
        return await self._in_thread(lambda: self._keys(folder))

    async def written(self, prefix: str) -> Written:
        """Times are those of files, which a file server sets by its own clock."""
        folder = self._root / checked_prefix(prefix)
        return await self._in_thread(lambda: self._written(folder))

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [self._path(key) for key in keys]

        def remove() -> None:
            for path in paths:
                _unlink(path)

        await self._in_thread(remove)

    def _path(self, key: str) -> str:
        return os.path.join(self._root, checked_key(key))

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            raise StoreUnavailable(f"store {self.identity}: {error}") from error
        # RuntimeError: no thread can be started
        except (MemoryError, RuntimeError) as error:
            if is_host_failure(error):
                raise StoreUnavailable(f"store {self.identity}: {described(error)}") from error
            raise

    def _create(self, path: str, body: bytes) -> bool:
        try:
            return self._link(path, body)
        except FileNotFoundError:
            # A folder that was known is gone: somebody removed it while this process ran.
            self._known_folders.clear()
            self._temporary.mkdir(mode=0o700, exist_ok=True)
            return self._link(path, body)

    def _link(self, path: str, body: bytes) -> bool:
        folder = os.path.dirname(path)
        self._make_folder(folder)
        try:
            # not rename, which would replace another writer's blob: link fails where the name is taken
            if self._has_nameless:
                _link_nameless(folder, body, path)
            else:
                self._link_temporary(body, path)
        except FileExistsError:
            created = False
        else:
            created = True
        # also where it is taken: its writer may not have flushed the name yet, and the caller goes by what is there
        _flush(folder)
        return created

    def _links_nameless(self) -> bool:
        """Whether the file system has files without names. That of a file server, for one, hasn't."""
        probe = self._temporary_path()
        try:
            _link_nameless(str(self._temporary), b"", probe)
        except OSError:
            return False
        finally:
            _unlink(probe)
        return True

    def _link_temporary(self, body: bytes, path: str) -> None:
        temporary = self._write_temporary(body)
        try:
            os.link(temporary, path)
        finally:
            _unlink(temporary)

    def _write_temporary(self, body: bytes) -> str:
        path = self._temporary_path()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _write(descriptor, body)
        except OSError:
            _unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path

    def _temporary_path(self) -> str:
        # random: hosts and containers that share the folder may have processes of one number
        return os.path.join(self._temporary, f"{os.getpid()}-{self._token}-{next(self._names)}")

    def _make_folder(self, folder: str) -> None:
        """Make the folder and flush its name to the disk, before anything in it counts as written."""
        if folder in self._known_folders:
            return
        if folder != str(self._root):
            above = os.path.dirname(folder)
            self._make_folder(above)
            Path(folder).mkdir(mode=0o700, exist_ok=True)
            # also where another process has made it: that one may not have flushed it yet
            _flush(above)
        if len(self._known_folders) >= MOST_KNOWN_FOLDERS:
            self._known_folders.clear()
        self._known_folders.add(folder)

    def _written(self, folder: Path) -> Written:
        at: dict[str, float] = {}
        for key in self._keys(folder):
            with suppress(FileNotFoundError):  # deleted meanwhile
                at[key] = (self._root / key).stat().st_mtime
        # a file made now has the time by the clock that dates the others
        probe = self._write_temporary(b"")
        try:
            return Written(os.stat(probe).st_mtime, at)
        finally:
            _unlink(probe)

    def _keys(self, folder: Path) -> list[str]:
        return sorted(
            f"{Path(parent).relative_to(self._root)}/{name}"
            for parent, _, names in os.walk(folder, onerror=_unless_absent)
            for name in names
        )


def _unless_absent(error: OSError) -> None:
    """Raise unless the folder is absent: one that can't be listed isn't empty."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    # a missing folder, or a file in the place of one, means that there is no such key
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        parts = [os.read(descriptor, READ_BYTES)]
        # a file gives less than it is asked for only at its end
        while len(parts[-1]) == READ_BYTES:
            parts.append(os.read(descriptor, READ_BYTES))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _link_nameless(folder: str, body: bytes, path: str) -> None:
    """Write a file in `folder` that has no name, and leaves nothing behind without one; give it the name `path`."""
    descriptor = os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600)
    try:
        _write(descriptor, body)
        # with a folder's descriptor, which an absolute path doesn't need, the link is to what /proc's link leads to
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
    finally:
        os.close(descriptor)


def _write(descriptor: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _flush(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def filesystem_identity(root: Path) -> str:
    """The store's name, without opening it."""
    return f"file:{root.absolute()}"


def unfinished_writes(location: str) -> list[Path]:
    """The temporary files that killed writers have left in the store at `location`; other stores have none."""
    if "://" in location:
        return []
    latest, found = time.time() - UNFINISHED_SECONDS, []
    for path in (Path(location) / TEMPORARY).glob("*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < latest:
                found.append(path)
    return found
