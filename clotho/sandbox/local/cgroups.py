"""Bounds by control groups, version 1 or 2, where this process may make them."""

import errno
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import SandboxUnavailable

PARENT = "clotho"
END_SECONDS = 5.0
LEAVE_SECONDS = 0.05
"""For processes whose supervisor has ended to follow it: one that is killed leaves its own children to init."""
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
    sockets: str | None = None
    """File of the count of socket buffers, where the kernel counts them apart from other memory."""
    weight: str | None = None
    """File of the weight for processor or disk time: groups have the same, however many processes are in them.

    All sandboxes together have what one session or service beside them has: a worker, a Temporal server.
    """

    def group(self, name: str) -> str:
        return f"{self.hierarchy}/{PARENT}/{name}"


def usable(root: Path = Path("/sys/fs/cgroup")) -> tuple[Controller, ...]:
    """The controllers for sandboxes: none where this process can't bound both memory and processes."""
    needed, wanted = _second(root) if (root / "cgroup.controllers").exists() else _first(root)
    if not all(map(_works, needed)):
        return ()
    return (*needed, *filter(_works, wanted))


def _second(root: Path) -> tuple[tuple[Controller, ...], tuple[Controller, ...]]:
    needed = Controller(root, memory="memory.max", processes="pids.max", no_swap="memory.swap.max")
    return (needed,), (
        Controller(root, weight="cpu.weight"),
        Controller(root, weight="io.weight"),
    )


def _first(root: Path) -> tuple[tuple[Controller, ...], tuple[Controller, ...]]:
    memory = Controller(
        root / "memory",
        memory="memory.limit_in_bytes",
        memory_and_swap="memory.memsw.limit_in_bytes",
        sockets="memory.kmem.tcp.limit_in_bytes",
    )
    return (memory, Controller(root / "pids", processes="pids.max")), (
        Controller(root / "cpu", weight="cpu.shares"),
        # only the scheduler bfq heeds weights in version 1; kernels without it have no such file
        Controller(root / "blkio", weight="blkio.bfq.weight"),
    )


def shares_processors(controllers: tuple[Controller, ...]) -> bool:
    return any(controller.weight in ("cpu.weight", "cpu.shares") for controller in controllers)


def _works(controller: Controller) -> bool:
    try:
        _make_parent(controller)
        # Tried, since nothing else tells: containers show the hierarchy read-only, or without some
        # controllers.
        probe = controller.hierarchy / PARENT / f"probe-{os.getpid()}-{time.monotonic_ns()}"
        probe.mkdir()
        needed = (controller.memory, controller.processes, controller.weight)
        works = all((probe / name).exists() for name in needed if name)
        probe.rmdir()
    except OSError as error:
        # A shortage says nothing about the host: taken for an answer, it would leave sandboxes without
        # bounds.
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return False
    return works


def _make_parent(controller: Controller) -> None:
    parent = controller.hierarchy / PARENT
    parent.mkdir(exist_ok=True)
    if (controller.hierarchy / "cgroup.subtree_control").exists():
        enabled = "+memory +pids" if controller.weight is None else f"+{controller.weight.partition('.')[0]}"
        for group in (controller.hierarchy, parent):
            (group / "cgroup.subtree_control").write_text(enabled)


def paths(controllers: tuple[Controller, ...], name: str) -> list[Path]:
    """Paths of the groups of a sandbox, each once."""
    return [Path(path) for path in dict.fromkeys(controller.group(name) for controller in controllers)]


def counting(controllers: tuple[Controller, ...]) -> tuple[Controller, ...]:
    """The controllers whose groups count the memory or the processes of a sandbox."""
    return tuple(each for each in controllers if each.memory or each.processes)


def make(controllers: tuple[Controller, ...], name: str, memory_mb: int, processes: int) -> list[Path]:
    """The groups that a sandbox's processes are to join."""
    for controller in controllers:
        group = controller.group(name)
        # a verifier's instance joins the groups of the agent's: one bound holds for both
        os.makedirs(group, exist_ok=True)
        # In this order: version 1 refuses a bound of memory and swap that is below the one of memory alone.
        bounds = {
            controller.memory: memory_mb << 20,
            controller.memory_and_swap: memory_mb << 20,
            controller.no_swap: 0,
            # a quarter of the bound, in bytes: version 1 doesn't count socket buffers as the group's memory
            controller.sockets: memory_mb << 18,
            controller.processes: processes + PROCESS_HEADROOM,
        }
        for file, bound in bounds.items():
            if file is not None:
                _set(f"{group}/{file}", bound)
    return paths(controllers, name)


def _set(file: str, bound: int) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # kernels without swap have no file for it
        return
    try:
        os.write(descriptor, str(bound).encode())
    finally:
        os.close(descriptor)


def end(controllers: tuple[Controller, ...], name: str) -> None:
    """Kill what is left in a sandbox's groups, and remove them."""
    for group in paths(controllers, name):
        # Processes fork between the reading of the list and the signals: until the group can be removed,
        # again.
        begun = time.monotonic()
        while not _removed(group):
            if time.monotonic() > begun + LEAVE_SECONDS:
                with suppress(FileNotFoundError):
                    _kill_all(group)
            if time.monotonic() > begun + END_SECONDS:
                raise SandboxUnavailable(f"processes in {group} can't be ended")
            time.sleep(0.002)


def _removed(group: Path) -> bool:
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _kill_all(group: Path) -> None:
    for process in map(int, (group / "cgroup.procs").read_text().split()):
        # the kernel lists a process of an outer pid namespace as 0, which to `kill` means this process's own group
        if process > 0:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
