"""Costs of a command: through a sandbox's supervisor, and started plainly, all in one run.

python -m benchmarks.commands
"""

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import Row
from clotho.config import Settings
from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import Job, JobState, SandboxInstance, SandboxSpec
from clotho.sandbox.registry import open_backend

REPEATS = 200
WIDTH = 16
BUBBLEWRAP = ("bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")


class Timing(NamedTuple):
    median_ms: float
    p95_ms: float
    per_second: float


async def measure() -> list[Row]:
    """`bash -c true` started plainly, in a fresh bubblewrap, and in warm sandboxes, one and 16 at once."""
    with sandbox_root() as root:
        backend = open_backend(Settings(), root)
        leases = [f"bench/{n}" for n in range(WIDTH)]
        sandboxes = [await backend.create(lease, SandboxSpec(disk_mb=64)) for lease in leases]
        try:
            await _one_after_another(run_in_sandbox(sandboxes[0], "warm up"), WIDTH)
            plain = await _timed([_plainly("bash", "-c", "true")])
            fresh = await _timed([_plainly(*BUBBLEWRAP, "bash", "-c", "true")])
            alone = await _timed([run_in_sandbox(sandboxes[0], "alone")])
            together = await _timed([run_in_sandbox(each, "together") for each in sandboxes])
        finally:
            for lease in leases:
                await backend.destroy(lease)
    return [
        Row("bash -c true", _shown(plain)),
        Row("bwrap … bash -c true", _shown(fresh)),
        Row("bash -c true in a sandbox", _shown(alone), "≤ 6 ms"),
        Row(f"bash -c true in {WIDTH} sandboxes at once", _shown(together), "≥ 400/s"),
    ]


@contextmanager
def sandbox_root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="clotho-bench-") as name:
        root = Path(name)
        root.chmod(0o711)
        yield root


Run = Callable[[int], Awaitable[None]]


def _plainly(*command: str) -> Run:
    async def run(number: int) -> None:
        await asyncio.to_thread(subprocess.run, command, check=True)

    return run


def run_in_sandbox(sandbox: SandboxInstance, name: str) -> Run:
    """Start, wait for the end, read the output: what a tool call does."""

    async def run(number: int) -> None:
        job = Job(key=job_key(name, number), script="true")
        await sandbox.start(job)
        status = await sandbox.wait(job.key, 60)
        assert (status.state, status.exit_code) == (JobState.EXITED, 0)
        await sandbox.output(job.key)

    return run


async def _one_after_another(run: Run, times: int) -> list[float]:
    seconds = []
    for number in range(times):
        began = time.perf_counter()
        await run(number)
        seconds.append(time.perf_counter() - began)
    return seconds


async def _timed(runs: list[Run]) -> Timing:
    began = time.perf_counter()
    each = await asyncio.gather(*(_one_after_another(run, REPEATS // min(len(runs), 4)) for run in runs))
    wall = time.perf_counter() - began
    seconds = sorted(second for seconds in each for second in seconds)
    count = len(seconds)
    return Timing(seconds[count // 2] * 1e3, seconds[count * 95 // 100] * 1e3, count / wall)


def _shown(timing: Timing) -> str:
    return f"median {timing.median_ms:.1f} ms, p95 {timing.p95_ms:.1f} ms, {timing.per_second:.0f}/s"


if __name__ == "__main__":
    for row in asyncio.run(measure()):
        print(f"{row.what:40}{row.figure:44}{row.aim}")  # noqa: T201
