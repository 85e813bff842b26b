"""CPU time of a sandbox and of a command in it: of the worker, and of the processes that it starts for them.

python -m benchmarks.sandboxes
"""

import asyncio
import os
import time
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import NamedTuple

from benchmarks.commands import run_in_sandbox, sandbox_root
from benchmarks.cpu import adopted_orphans
from benchmarks.table import Row
from clotho.config import Settings
from clotho.sandbox.backend import SandboxBackend, SandboxSpec
from clotho.sandbox.registry import open_backend

CYCLES, COMMANDS, WARM_UP, ALIVE = 30, 300, 3, 400
SPEC = SandboxSpec(disk_mb=512)
END_SECONDS = 2.0


class Spent(NamedTuple):
    """Milliseconds of CPU time."""

    worker: float
    started: float

    def less(self, other: "Spent", times: int) -> "Spent":
        return Spent((self.worker - other.worker) / times, (self.started - other.started) / times)

    def __str__(self) -> str:
        return f"CPU: {self.worker:.1f} ms in the worker, {self.started:.1f} ms in what it starts"


async def measure() -> list[Row]:
    with sandbox_root() as root, adopted_orphans():
        backend = open_backend(Settings(), root)
        for number in range(WARM_UP):
            await _life_of_one(backend, f"warm/{number}", 1)
        sandbox = await _cost_of_one(backend, "empty")
        begun = _spent()
        await _life_of_one(backend, "used", COMMANDS)
        command = _spent().less(begun, 1).less(sandbox, COMMANDS)
        alive = [f"alive/{number}" for number in range(ALIVE)]
        for lease in alive:
            await backend.create(lease, SPEC)
        among = await _cost_of_one(backend, "among")
        for lease in alive:
            await backend.destroy(lease)
    return [
        Row("a sandbox made and destroyed", str(sandbox), "≤ 45 ms in all"),
        Row(f"the same, with {ALIVE} others alive", str(among), "≤ 45 ms in all"),
        Row("true in a sandbox that is warm", str(command), "≤ 4.2 ms in all"),
    ]


async def _cost_of_one(backend: SandboxBackend, name: str) -> Spent:
    begun = _spent()
    for number in range(CYCLES):
        await _life_of_one(backend, f"{name}/{number}", 0)
    return _spent().less(begun, CYCLES)


async def _life_of_one(backend: SandboxBackend, lease: str, commands: int) -> None:
    sandbox = await backend.create(lease, SPEC)
    run = run_in_sandbox(sandbox, lease)
    for number in range(commands):
        await run(number)
    await backend.destroy(lease)


def _spent() -> Spent:
    """So far; what has ended counts once it was waited for."""
    deadline = time.monotonic() + END_SECONDS
    while _wait_for_one() and time.monotonic() < deadline:
        time.sleep(0.001)
    usages = (getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN))
    return Spent(*((usage.ru_utime + usage.ru_stime) * 1e3 for usage in usages))


def _wait_for_one() -> bool:
    """Whether there is another child."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    for row in asyncio.run(measure()):
        print(f"{row.what:40}{row.figure:64}{row.aim}")  # noqa: T201
