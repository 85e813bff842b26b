"""Roles of worker processes, and the numbered slot of its host that each process holds."""

import fcntl
import os
from itertools import count
from pathlib import Path

from clotho.errors import InvalidInput

ROLES = ("workflows", "llm", "tools")
LAYOUT = (("llm",), ("workflows", "tools"))
"""Roles of each process by default."""


def process_layout(roles: str | None, processes: int | None) -> list[tuple[str, ...]]:
    """The roles of each process; raises InvalidInput for a number of processes without roles."""
    if roles is not None:
        named = tuple(roles.split(","))
        for role in named:
            if role not in ROLES:
                raise InvalidInput(f"unknown role {role!r}: there are {', '.join(ROLES)}")
        return [named] * (processes or 1)
    if processes is not None:
        raise InvalidInput(
            f"--processes {processes} needs --roles, which says what these processes serve: run, for example, "
            f"`--roles workflows --processes {processes}` beside `--roles llm` and `--roles tools`"
        )
    return list(LAYOUT)


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
