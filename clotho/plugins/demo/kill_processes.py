"""Kill sandboxes and workers, and find the processes and files that are left of them."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from clotho.plugins.containers.folders import ContainerFolder
from clotho.sandbox.local.backend import REGISTRY
from clotho.sandbox.local.folders import SandboxFolder
from clotho.sandbox.local.processes import processes_of
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.launch import lock_holder


def kill_supervisors(root: Path, lease: str) -> None:
    """SIGKILL the PID 1 of every instance; the kernel ends the rest with it, and files stay."""
    folders = (SandboxFolder.of_lease(root, lease), ContainerFolder.of_lease(root / "containers", lease))
    for path in (path for folder in folders for path in folder.control_directories()):
        alive = ControlDirectory(path, None).alive_file
        if alive.exists() and (pid := lock_holder(alive)) is not None:
            os.kill(pid, signal.SIGKILL)
            # until the kernel has ended it: the sandbox is lost only when its lock is free
            while lock_holder(alive) is not None:
                pass


def worker_processes(parent: int) -> list[int]:
    """Process ids of the workers under `parent`."""
    processes = (process for process in Path("/proc").iterdir() if process.name.isdigit())
    return [int(process.name) for process in processes if _serves(process, parent)]


def _serves(process: Path, parent: int) -> bool:
    try:
        # after the last bracket: the program's name before it may hold spaces and brackets
        status = (process / "stat").read_text().rpartition(")")[2].split()
        return int(status[1]) == parent and b"\0--roles\0" in (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def files_of_lease(root: Path, lease: str) -> Path:
    """The folder of a lease's sandbox."""
    return SandboxFolder.of_lease(root, lease).files


def processes_of_lease(root: Path, lease: str) -> list[str]:
    return processes_below(files_of_lease(root, lease))


def programs_of_lease(root: Path, lease: str, name: str) -> list[int]:
    """Process ids in a lease's sandbox of the programs whose names begin with `name`."""
    pids = [int(process.removeprefix("process ")) for process in processes_of_lease(root, lease)]
    return [pid for pid in pids if program_of(pid).startswith(name)]


def program_of(pid: int) -> str:
    """The name of a process' program; empty where it is gone."""
    return Path(next(iter(arguments_of(pid)), "")).name


def arguments_of(pid: int) -> list[str]:
    """The arguments of a process; none where it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def processes_below(root: Path) -> list[str]:
    """Processes that run as a user claimed for a sandbox below `root`, or see one of its folders."""
    users = {int(path.name) for path in REGISTRY.glob("[0-9]*") if _claimed_below(path, root)}
    every = (process for process in Path("/proc").iterdir() if process.name.isdigit())
    watching = (process for process in every if _sees(process, root))
    return [f"process {process.name}" for process in {*processes_of(users), *watching}]


def _claimed_below(claim: Path, root: Path) -> bool:
    try:
        return Path(claim.read_text()).is_relative_to(root)
    except FileNotFoundError:
        return False


def _sees(process: Path, root: Path) -> bool:
    try:
        return f"--bind\0{root}".encode() in (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
