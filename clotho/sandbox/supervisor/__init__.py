"""The supervisor: the static program that starts, follows and ends the commands of one sandbox."""

import platform
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
