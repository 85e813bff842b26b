"""Start and end of a supervisor as a process of this host."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import SandboxLost, SandboxUnavailable
from clotho.sandbox.supervised.control import ControlDirectory

READY_SECONDS = 30.0
END_SECONDS = 2.0


def private(path: str, flags: int) -> int:
    """An opener for files that only this process's user may read."""
    return os.open(path, flags, 0o600)


@dataclass(frozen=True)
class Launch:
    """A supervisor to start, in a session of its own, so that nothing that ends the worker ends it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    """Working directory of the launching process."""
    log: Path
    lease_seconds: float
    max_processes: int
    max_file_bytes: int
    inherited: Sequence[int]


Process = subprocess.Popen[bytes]
Call = Callable[[Callable[[], Process]], Process]


def start(
    launch: Launch, control: ControlDirectory, call: Call = lambda function: function()
) -> tuple[Process, str]:
    """Start a supervisor; returns the process, which `call` makes, and the supervisor's incarnation.

    Raises SandboxUnavailable with what it wrote to its log.
    """
    bounds = (round(launch.lease_seconds), launch.max_processes, launch.max_file_bytes)
    with ExitStack() as stack:
        ours = stack.enter_context(ExitStack())
        directory = os.open(control.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        ours.callback(os.close, directory)
        ready, tell = os.pipe()
        stack.callback(os.close, ready)
        ours.callback(os.close, tell)
        supervisor = [*launch.command, "serve", str(directory), str(tell), *map(str, bounds)]
        with open(launch.log, "wb", opener=private) as log:
            process = call(
                lambda: subprocess.Popen(
                    supervisor,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(directory, tell, *launch.inherited),
                    env=dict(launch.environment),
                    cwd=launch.folder,
                )
            )
        # with the pipe's other end open here, the death of a supervisor wouldn't be the end of the pipe
        ours.close()
        incarnation = _answer(ready)
    if not incarnation:
        process.kill()
        process.wait()
        raise SandboxUnavailable(
            f"the sandbox didn't start: {launch.log.read_text(errors='replace').strip()}"
        )
    return process, incarnation


def _answer(ready: int) -> str:
    """The incarnation that the supervisor tells; empty where it ends, or says nothing in time."""
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    return os.read(ready, 64).decode().strip() if poll.poll(READY_SECONDS * 1000) else ""


def end(control: ControlDirectory) -> None:
    """End the supervisor; where it is PID 1, the sandbox ends with it. Raises SandboxUnavailable if it stays."""
    if control.incarnation() is None:
        return
    # gone just now, or too busy to take requests: then it is killed below
    with suppress(SandboxLost, SandboxUnavailable):
        control.say("stop")
    if not _gone(control):
        _kill_holder(control)
        if not _gone(control):
            raise SandboxUnavailable("the sandbox's supervisor can't be ended")


def _gone(control: ControlDirectory) -> bool:
    deadline = time.monotonic() + END_SECONDS
    while control.incarnation() is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def _kill_holder(control: ControlDirectory) -> None:
    """Kill the process that holds the lock, as the kernel tells."""
    holder = lock_holder(control.alive_file)
    if holder is None:
        return
    process = os.pidfd_open(holder)
    try:
        # the number may have passed to another process before it was opened; the descriptor stays with one
        if lock_holder(control.alive_file) == holder:
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)


def lock_holder(file: Path) -> int | None:
    status = file.stat()
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5] == wanted:
            return int(fields[4])
    return None
