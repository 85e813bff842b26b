"""The users of sandboxes, claimed in a registry that all sandboxes of a host share.

Each has two: its commands' is claimed from a range, and with it goes its supervisor's.
"""

import fcntl
import os
import pwd
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from clotho.errors import IsolationUnavailable, SandboxUnavailable
from clotho.sandbox.local.processes import has_processes, processes_of
from clotho.sandbox.supervised.files import exists

RANGE = range(2_000_000, 2_010_000)
"""Above the users of distributions and common subuid ranges; below 2^21, where tar's number fields end."""

SUPERVISORS = 10_000
"""From the user of a sandbox's commands to that of its supervisor, which is claimed with it."""

PATH_BYTES = 4096
ACCOUNTS_SECONDS = 60
"""Within which an account that is added is seen: libraries look for it in many places."""


def supervisor_of(user: int) -> int:
    return user + SUPERVISORS


class UserRegistry:
    """A claim is a file named by the user id that holds the folder of its sandbox; it is free once that is gone."""

    def __init__(self, folder: Path, users: range = RANGE) -> None:
        self._folder = folder
        self._users = users

    def claim(self, sandbox: Path) -> int:
        """Claim a user for the sandbox in folder `sandbox`; a second call returns the same user."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        with self._locked():
            own = self._folder / ".claim"
            own.unlink(missing_ok=True)  # of a process that died here: it may be a claim by now
            own.write_text(str(sandbox))
            try:
                return self._claim(sandbox, own)
            finally:
                own.unlink()

    def _claim(self, sandbox: Path, own: Path) -> int:
        holders = self._holders()
        for user, holder in holders.items():
            if holder == str(sandbox):
                return user
        # part of the cache's key: each period looks an account up once
        period = round(time.monotonic() / ACCOUNTS_SECONDS)
        for user in self._users:
            # A user whose sandbox is gone may still have processes, which could read and signal those of the
            # next one.
            held = user in holders and exists(holders[user])
            if held or any(_lives(each) or _in_passwd(each, period) for each in (user, supervisor_of(user))):
                continue
            claim = self._folder / str(user)
            claim.unlink(missing_ok=True)
            # A link appears with its content: a worker that dies here leaves no claim without a holder.
            os.link(own, claim)
            return user
        raise SandboxUnavailable(f"all {len(self._users)} users for sandboxes are taken")

    def _holders(self) -> dict[int, str]:
        users = [int(name) for name in os.listdir(self._folder) if name.isdigit()]
        return {user: self._holder(user) for user in users}

    def _holder(self, user: int) -> str:
        """The folder of the sandbox that holds a user; empty for none."""
        try:
            claim = os.open(f"{self._folder}/{user}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return ""
        try:
            return os.read(claim, PATH_BYTES).decode(errors="surrogateescape")
        finally:
            os.close(claim)

    def held_by(self, sandbox: Path, likely: int | None = None) -> int | None:
        """The user of the sandbox in this folder. None after a boot: folders outlive it, and claims don't.

        `likely` is looked at first: the user that the sandbox was made with.
        """
        if not self._folder.exists():
            return None
        with self._locked():
            if likely is not None and self._holder(likely) == str(sandbox):
                return likely
            return next((user for user, holder in self._holders().items() if holder == str(sandbox)), None)

    def release(self, user: int, sandbox: Path) -> None:
        """Give a user back. Call it when no process of the user lives and its sandbox's folder is gone.

        Another sandbox may have claimed the user by then; that claim stays.
        """
        with self._locked():
            if self._holder(user) == str(sandbox):
                os.unlink(f"{self._folder}/{user}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def require_usable(self) -> None:
        """Raises IsolationUnavailable where this user namespace doesn't have the range."""
        mapped = (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
        if not any(
            int(first) <= self._users[0] and supervisor_of(self._users[-1]) < int(first) + int(count)
            for first, _, count in mapped
        ):
            raise IsolationUnavailable(
                f"users {self._users[0]} to {supervisor_of(self._users[-1])} don't exist here: choose from"
                " /proc/self/uid_map"
            )


def _lives(user: int) -> bool:
    # the kernel's count first: it costs one call, and a look through /proc thousands
    return has_processes(user) and bool(processes_of({user}))


@lru_cache(256)
def _in_passwd(user: int, period: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True
