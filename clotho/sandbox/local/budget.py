"""The disk budget of a host's sandboxes, checked before one is made, since images are sparse."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import SandboxUnavailable

LEAST_FREE = 0.02
"""The part of a file system below which no sandbox is made: those that are there need the rest."""


@dataclass(frozen=True)
class DiskBudget:
    """`stores` is the folder in which each store has its sandboxes. Without a limit, images may be of any size."""

    stores: Path
    limit_mb: int | None

    @contextmanager
    def taken(self, root: Path, size_mb: int) -> Iterator[None]:
        """Hold the budget while images of `size_mb` in all are made. Raises SandboxUnavailable without room."""
        status = os.statvfs(root)
        if status.f_bavail < status.f_blocks * LEAST_FREE:
            raise SandboxUnavailable(f"the disk of {root} is full: no sandbox is made there")
        if self.limit_mb is None:
            yield
            return
        with self._locked():
            # By their length, not their blocks: an image is sparse, and its sandbox may fill it at any time.
            promised = sum(path.stat().st_size for path in self.stores.glob("*/sandboxes/*/*.img")) >> 20
            if promised + size_mb > self.limit_mb:
                raise SandboxUnavailable(
                    f"sandboxes of this host have {promised} of {self.limit_mb} MiB of disk: no room for {size_mb}"
                )
            # still locked: the next maker must count the images that are made now
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.stores / ".disk-budget", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
