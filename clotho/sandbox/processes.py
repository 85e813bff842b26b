"""The users of this host's processes, and ending those of one."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from clotho.errors import SandboxUnavailable

END_TIMEOUT = 2.0


def users_of_processes() -> dict[Path, int]:
    """Folders in /proc and the users they run as, without those that have ended and wait for their parents."""
    users = {path: _user(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return {path: user for path, user in users.items() if user is not None}


def end_processes_of(user: int) -> None:
    """End what is left of a sandbox's own user. A supervisor's lock goes before its last children."""
    deadline = time.monotonic() + END_TIMEOUT
    while left := [path for path, owner in users_of_processes().items() if owner == user]:
        if time.monotonic() > deadline:
            raise SandboxUnavailable(f"processes of user {user} can't be ended")
        for path in left:
            with suppress(ProcessLookupError):
                _end(path, user)
        time.sleep(0.002)


def _end(path: Path, user: int) -> None:
    process = os.pidfd_open(int(path.name))
    try:
        if _user(path) == user:
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)


def _user(process: Path) -> int | None:
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return None if state == "Z" else process.stat().st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None
