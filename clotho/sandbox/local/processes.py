"""The users of this host's processes, and ending those of one."""

import os
import signal
import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from clotho.errors import SandboxUnavailable

END_SECONDS = 2.0


def has_processes(user: int) -> bool:
    """Whether `user` has a process. The kernel also counts those that have ended and wait for their parents."""
    try:
        os.getpriority(os.PRIO_USER, user)
    except ProcessLookupError:
        return False
    return True


def processes_of(users: Container[int]) -> dict[Path, int]:
    """Folders in /proc of `users`' processes, without those that have ended and wait for their parents.

    Every sandbox of a host looks: no file of another user's process is read.
    """
    with os.scandir("/proc") as entries:
        paths = [entry.path for entry in entries if entry.name.isdigit()]
    owned = ((Path(path), user) for path in paths if (user := _user(path)) is not None and user in users)
    return {path: user for path, user in owned if _lives(path)}


def end_processes_of(user: int) -> None:
    """End what is left of a sandbox's own user: a supervisor's last children may live longer than its lock."""
    deadline = time.monotonic() + END_SECONDS
    while has_processes(user) and (left := processes_of({user})):
        if time.monotonic() > deadline:
            raise SandboxUnavailable(f"processes of user {user} can't be ended")
        for path in left:
            with suppress(ProcessLookupError):
                _end(path, user)
        time.sleep(0.002)


def _end(path: Path, user: int) -> None:
    # The number may be another process' by now: the descriptor stays with one, whose user is looked at again.
    process = os.pidfd_open(int(path.name))
    try:
        if _user(path) == user:
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)


def _user(process: str | Path) -> int | None:
    try:
        # the kernel shows the effective user of any process here, also of one that isn't dumpable
        return os.stat(process).st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None


def _lives(process: Path) -> bool:
    try:
        # the name, in brackets, may hold blanks and brackets itself: the state follows the last one
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
