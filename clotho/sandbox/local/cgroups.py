"""Bounds on memory and processes by control groups, version 1 or 2, where this process may make them."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import SandboxUnavailable

PARENT = "clotho"
END_TIMEOUT = 5.0
PROCESS_HEADROOM = 64
"""Left for the supervisor: commands meet their own, smaller limit before it can no longer start anything."""


@dataclass(frozen=True)
class Controller:
    """A hierarchy, and the files in it that bound a group."""

    hierarchy: Path
    memory: str | None = None
    processes: str | None = None
    memory_and_swap: str | None = None
    no_swap: str | None = None


def usable(root: Path = Path("/sys/fs/cgroup")) -> tuple[Controller, ...]:
    """The controllers that this process can bound sandboxes with; none where it can't bound both."""
    candidates: tuple[Controller, ...]
    if (root / "cgroup.controllers").exists():
        candidates = (Controller(root, memory="memory.max", processes="pids.max", no_swap="memory.swap.max"),)
    else:
        candidates = (
            Controller(
                root / "memory",
                memory="memory.limit_in_bytes",
                memory_and_swap="memory.memsw.limit_in_bytes",
            ),
            Controller(root / "pids", processes="pids.max"),
        )
    return candidates if all(_works(controller) for controller in candidates) else ()


def _works(controller: Controller) -> bool:
    try:
        _make_parent(controller)
        probe = controller.hierarchy / PARENT / f"probe-{os.getpid()}-{time.monotonic_ns()}"
        probe.mkdir()
        works = all((probe / name).exists() for name in (controller.memory, controller.processes) if name)
        probe.rmdir()
    except OSError:
        return False
    return works


def _make_parent(controller: Controller) -> None:
    parent = controller.hierarchy / PARENT
    parent.mkdir(exist_ok=True)
    if (controller.hierarchy / "cgroup.subtree_control").exists():
        for group in (controller.hierarchy, parent):
            (group / "cgroup.subtree_control").write_text("+memory +pids")


def paths(controllers: tuple[Controller, ...], name: str) -> list[Path]:
    return [controller.hierarchy / PARENT / name for controller in controllers]


def make(controllers: tuple[Controller, ...], name: str, memory_mb: int, processes: int) -> list[Path]:
    """The groups that a sandbox's processes are to join."""
    groups = paths(controllers, name)
    for controller, group in zip(controllers, groups, strict=True):
        group.mkdir(parents=True, exist_ok=True)
        bounds = {
            controller.memory: memory_mb << 20,
            controller.memory_and_swap: memory_mb << 20,
            controller.no_swap: 0,
            controller.processes: processes + PROCESS_HEADROOM,
        }
        for file, bound in bounds.items():
            if file is not None and (group / file).exists():  # kernels without swap have no file for it
                (group / file).write_text(str(bound))
    return groups


def end(controllers: tuple[Controller, ...], name: str) -> None:
    """Kill what is left in a sandbox's groups, and remove them."""
    for group in paths(controllers, name):
        deadline = time.monotonic() + END_TIMEOUT
        while group.exists():
            for process in (group / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            try:
                group.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise SandboxUnavailable(f"processes in {group} can't be ended") from None
                time.sleep(0.002)
