"""The supervisor: the static program that starts, follows and ends the commands of one sandbox."""

import hashlib
import os
import platform
import time
from pathlib import Path

from clotho.errors import IsolationUnavailable

FOLDER = Path(__file__).parent
ARCHITECTURES = ("x86_64", "aarch64")


def supervisor_path(machine: str = platform.machine()) -> Path:
    """The program for `machine`. Raises IsolationUnavailable where there is none."""
    architecture = {"arm64": "aarch64", "amd64": "x86_64"}.get(machine.lower(), machine)
    if architecture not in ARCHITECTURES:
        raise IsolationUnavailable(f"no supervisor program for {machine}: build one from {FOLDER}")
    return FOLDER / f"supervisor-{architecture}"


def supervisor_copy(folder: Path, machine: str = platform.machine()) -> Path:
    """A copy in `folder` that no installation of another version replaces under a sandbox."""
    content = supervisor_path(machine).read_bytes()
    path = folder / hashlib.sha256(content).hexdigest()[:16]
    if not path.exists():
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
        unfinished.write_bytes(content)
        unfinished.chmod(0o555)
        unfinished.rename(path)
    return path
