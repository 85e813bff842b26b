"""Numbered process slots of a host: a process holds the lowest free number while it lives."""

import fcntl
import os
from itertools import count
from pathlib import Path


class ProcessSlot:
    """A number that no other living process of this host holds under `folder`, by a file lock."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for number in count():
            descriptor = os.open(folder / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self._descriptor = descriptor
            self.number = number
            return
