"""Containers made ahead of the rollouts that need one.

A member is a whole sandbox without a lease, in a folder below `pool`, under a key of everything that its container
was asked for. To claim it, a process renames its folder to that of a lease's sandbox, and only one process can; the
container keeps its name. A claimer that dies then leaves a sandbox without a lease there. The lease's next attempt
finishes the claim.

Members are leased for a minute at a time, by the processes that have made sandboxes of their kind lately. Where the
last of these dies, they end by themselves, and the reaper of any process on the host removes what is left.
"""

import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import ClothoError, SandboxLost
from clotho.plugins.containers.folders import ContainerFolder, ContainerRecord, members
from clotho.plugins.containers.host import ContainerHost
from clotho.plugins.containers.view import ContainerView
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.folders import lock
from clotho.sandbox.supervised.instance import SupervisedSandbox

LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
IDLE_SECONDS = 600.0
"""Seconds after the last sandbox of its kind for which a pool is kept full."""
MOST_KEYS = 8
"""Kinds of sandboxes that a process keeps pools of: those asked for last."""
ENDED_AT_ONCE = 8

log = logging.getLogger("clotho")

Make = Callable[[ContainerFolder, ContainerRecord, Restore | None, str | None], SupervisedSandbox]


@dataclass(frozen=True)
class Wanted:
    """A kind of sandbox to keep ready, and when one was asked for, by the monotonic clock."""

    record: ContainerRecord
    seed: Restore | None
    asked: float


class WarmPool:
    """Up to `size` members of each kind on this host, made in a thread of this process; 0: none are made."""

    def __init__(self, root: Path, host: ContainerHost, size: int, make: Make) -> None:
        self._root = root
        self._host = host
        self._size = size
        self._make = make
        self._wanted: dict[str, Wanted] = {}
        self._made: set[str] = set()
        self._changed = threading.Condition()
        self._asked = False
        self._thread: threading.Thread | None = None
        self._closed = False

    # ---- claims ----

    def claim(self, folder: ContainerFolder, record: ContainerRecord) -> bool:
        """Turn a member into the sandbox of `record`, whose folder is locked; returns whether there was one.

        Whatever else is in that folder is ended.
        """
        key = self._key(record)
        unfinished = folder.read_record()
        if unfinished is not None and not unfinished.lease and self._key(unfinished) == key:
            return self._adopt(folder, record)
        self._host.end(folder)
        # any of them may be renamed by another claimer, or have ended, meanwhile
        found = members(self._root, key)
        return any(self._rename_member(member, folder) and self._adopt(folder, record) for member in found)

    def _rename_member(self, member: ContainerFolder, folder: ContainerFolder) -> bool:
        with self._locked():
            try:
                folder.files.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                member.files.rename(folder.files)
            except FileNotFoundError:  # another was faster
                return False
            return True

    def _adopt(self, folder: ContainerFolder, record: ContainerRecord) -> bool:
        """Give a member to a lease; returns whether it lives. One that doesn't is ended."""
        made = folder.read_record()
        try:
            if made is not None and made.control_at(folder.control()).incarnation() is not None:
                # before it has a lease: an attempt that dies in between would leave one that ends within a minute
                made.control_at(folder.control()).renew(record.spec.lease_seconds)
                folder.write_record(made.model_copy(update={"lease": record.lease, "labels": record.labels}))
                return True
        except SandboxLost:
            log.info("a container of the pool has just ended")
        self._host.end(folder)
        return False

    @contextmanager
    def _locked(self, name: str = "claims", *, wait: bool = True) -> Iterator[bool]:
        """Hold `claims` to rename or renew a member: a late renewal would shorten the lease of its new sandbox."""
        folder = self._root / "locks"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock(folder / f"pool-{name}", wait=wait) as held:
            yield held

    def _key(self, record: ContainerRecord) -> str:
        bare = _bare(record)
        # one name and one control directory for all: what differs between sandboxes isn't in the key
        view = ContainerView(ContainerFolder(self._root, "member"), bare)
        asked = view.settings(Path("control"), self._host.program(bare.machine))
        text = json.dumps([bare.model_dump(mode="json"), asked], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    # ---- members ----

    def ask(self, record: ContainerRecord, seed: Restore | None) -> None:
        """Keep sandboxes like that of `record` ready from now on."""
        if not self._size:
            return
        key = self._key(record)
        with self._changed:
            # a dict keeps the order of insertion: those asked for last are at its end
            self._wanted.pop(key, None)
            self._wanted[key] = Wanted(_bare(record), seed, time.monotonic())
            for oldest in list(self._wanted)[:-MOST_KEYS]:
                del self._wanted[oldest]
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._fill, name="warm-pool", daemon=True)
                self._thread.start()
            self._asked = True
            self._changed.notify()

    def close(self) -> None:
        """Make no more, and end the members that this process has made."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        # only those of this process: others may go on renewing theirs
        own = [member for member in members(self._root) if member.name in self._made]
        with ThreadPoolExecutor(ENDED_AT_ONCE) as threads:
            list(threads.map(self.discard, own))

    def reap(self) -> list[str]:
        """End the members whose lease has ended, or whose container was removed; returns their names."""
        return [
            member.name for member in members(self._root) if self.is_dead(member) and self.discard(member)
        ]

    @staticmethod
    def is_dead(member: ContainerFolder) -> bool:
        return ControlDirectory(member.control(), None).incarnation() is None

    def discard(self, member: ContainerFolder) -> bool:
        """End a member unless it is claimed. It becomes a sandbox first: if this process dies, that is reaped."""
        folder = ContainerFolder(self._root, member.name)
        with folder.locked():
            if not self._rename_member(member, folder):
                return False
            try:
                self._host.end(folder)
            except ClothoError as error:
                log.warning("a container of the pool not ended: %s", error)
        return True

    # ---- the thread that fills ----

    def _fill(self) -> None:
        while not self._closed:
            more = [self._tend(key, wanted) for key, wanted in self._asked_lately()]
            with self._changed:
                # one asked for while the kinds were tended is tended at once
                if not any(more) and not self._closed and not self._asked:
                    self._changed.wait(RENEW_SECONDS)

    def _asked_lately(self) -> list[tuple[str, Wanted]]:
        with self._changed:
            self._asked = False
            since = time.monotonic() - IDLE_SECONDS
            self._wanted = {key: each for key, each in self._wanted.items() if each.asked > since}
            return list(self._wanted.items())

    def _tend(self, key: str, wanted: Wanted) -> bool:
        """Renew the members of a kind, and make one if some are missing; returns whether more are missing."""
        with self._locked(key, wait=False) as held:
            if not held:  # another process tends them
                return False
            try:
                missing = self._size - sum(map(self._renewed, members(self._root, key)))
                if missing > 0:
                    self._make_one(key, wanted)
            except (ClothoError, OSError) as error:
                log.warning("no container made ahead for %s: %s", wanted.record.config, error)
                with self._changed:
                    # not tried again before the next sandbox of its kind: the failure may last
                    self._wanted.pop(key, None)
                return False
        return missing > 1

    def _renewed(self, member: ContainerFolder) -> bool:
        """Renew a member's lease; returns whether it lives. One that doesn't is ended."""
        with self._locked(), suppress(SandboxLost):
            record = member.read_record()
            if record is not None:
                record.control_at(member.control()).renew(LEASE_SECONDS)
                return True
        # after the lock, which it takes itself: flock would wait for this process's other descriptor
        self.discard(member)
        return False

    def _make_one(self, key: str, wanted: Wanted) -> None:
        """Make a sandbox without a lease, and move it into the pool. If this process dies before, it is reaped."""
        folder = ContainerFolder(self._root, secrets.token_hex(10))
        with folder.locked():
            made = self._make(folder, wanted.record, wanted.seed, None)
            # it was made with a run's lease, which would outlive this process for long
            made.control.renew(LEASE_SECONDS)
            # before the rename: the name is made of the folder's, and an engine can't find it otherwise
            folder.keep_container_name()
            # claimed ones have left the pool: the set stays as small as that
            self._made &= {each.name for each in members(self._root)}
            self._made.add(folder.name)
            member = ContainerFolder(self._root, folder.name, f"pool/{key}")
            member.files.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.files.rename(member.files)


def _bare(record: ContainerRecord) -> ContainerRecord:
    """The record without the fields in which sandboxes of a kind differ."""
    return record.model_copy(update={"lease": "", "labels": None, "groups": (), "restored": None})
