"""Files of sandboxes on this host, read and deleted without trust in what commands have made of them."""

import errno
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clotho.errors import SandboxLost, SandboxUnavailable

SMALL_BYTES = 64 << 10
PIECE_BYTES = 1 << 20
ENDED = "ended-"
"""Beginning of the name of a folder that is being deleted."""
MOST_LATE_ENTRIES = 1_000
"""More than there are writers: a folder that is still not empty then is filled on purpose."""
KEY = re.compile("[0-9a-f]{32}")
StrPath = str | Path
NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
NO_FILE = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO})


@contextmanager
def opened(path: StrPath) -> Iterator[int]:
    """Open a file for reading without waiting, even if a command holds a lease on it or put a FIFO in its place.

    Raises SandboxLost for what is no regular file.
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


def delete_written(folder: Path) -> None:
    """Delete a control directory, or the folder around several, into which others may still write.

    It is renamed first: a late writer finds no folder of the old name.
    """
    ended = folder.with_name(f"{ENDED}{folder.name}")
    if ended.exists():  # whoever was to delete it was killed
        delete_any(ended)
    # gone already, or renamed by whoever was to delete it
    with suppress(FileNotFoundError):
        folder.rename(ended)
    for _ in range(MOST_LATE_ENTRIES):
        try:
            shutil.rmtree(ended)
            return
        except RecursionError:
            break
        except OSError as error:
            # whoever had found the folder before it was renamed makes one entry more, in what was just emptied
            if error.errno != errno.ENOTEMPTY:
                break
    delete_any(ended)


def delete_any(folder: Path) -> None:
    """Delete `folder` with rm: commands can nest folders deeper than Python follows, and mounts may be in them."""
    remove = ["rm", "-rf", "--one-file-system", str(folder)]
    result = subprocess.run(remove, capture_output=True, text=True)
    if result.returncode != 0 and os.geteuid() != 0:
        # Commands have closed folders, which keeps out everyone but root; find opens each before it goes in.
        closed = [
            "find",
            str(folder),
            "-xdev",
            "-type",
            "d",
            "!",
            "-perm",
            "-700",
            "-exec",
            "chmod",
            "u+rwx",
            "{}",
            ";",
        ]
        subprocess.run(closed, capture_output=True)
        result = subprocess.run(remove, capture_output=True, text=True)
    if result.returncode != 0:
        raise SandboxUnavailable(f"a sandbox can't be deleted: {result.stderr.strip()}")
