"""A supervisor's control directory as a test would have it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clotho.sandbox.supervised.control import ControlDirectory

KEY, OTHER = "0" * 31 + "1", "0" * 31 + "2"
INCARNATION = "0123456789abcdef"
WHOLE: dict[str, bytes] = {
    f"c/{KEY}/job": b"identity abc\ninput none\nsession web\n\necho hello",
    f"c/{KEY}/started": f"{INCARNATION}\n".encode(),
    f"c/{KEY}/done": b"exited 0 5\n",
    f"c/{KEY}/out": b"hello",
    f"c/{KEY}/pid": b"17\n",
    f"c/{KEY}/usage": b"0 3\n",
    f"c/{KEY}/exhausted": b"",
    f"c/{KEY}/cwd": b"/work",
    f"c/{KEY}/state": b"export A=1\0",
    f"f/{OTHER}/done": b"ok 5\n/work/file",
    f"f/{OTHER}/content": b"hello",
    f"sessions/{KEY}": b"",
    "alive": f"{INCARNATION}\n".encode(),
}


@dataclass(frozen=True)
class Case:
    files: dict[str, bytes]
    folders: tuple[str, ...]
    """Names that are folders, whatever they should be."""


@contextmanager
def alive(path: Path, made: Case) -> Iterator[ControlDirectory]:
    """The directory of a supervisor that lives, as far as its lock tells."""
    control = ControlDirectory(path, None)
    control.create()
    for name in made.folders:
        (path / name).mkdir(parents=True)
    for name, content in made.files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    lock = os.open(path / "alive", os.O_RDONLY) if "alive" in made.files else -1
    try:
        if lock >= 0:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield control
    finally:
        if lock >= 0:
            os.close(lock)
