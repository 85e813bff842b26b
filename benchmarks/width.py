"""Cost of a short rollout with a sandbox, and what changes where a thousand of them are open at once."""

import asyncio
import statistics
from contextlib import suppress

from benchmarks.cpu import cpu_seconds, memory_bytes
from benchmarks.loop import GRADED, Bench
from benchmarks.table import Row, ratio
from clotho.testing.script import Script, terminal_turns

SCORES = "echo -n 1 > score"
GROUP_SIZE = 4
SAMPLE_SECONDS = 10.0
"""Between two looks at the memory, each of which takes time of the processor itself."""


async def short(measured: Bench, rollouts: int = 100, repeats: int = 3) -> list[Row]:
    """Rollouts of two turns and one command, whose verification reads a file."""
    cpu = []
    async with measured.model(Script(conversations=(terminal_turns(1, SCORES),))) as url:
        for _ in range(repeats):
            used = cpu_seconds()
            await measured.rollouts(url, rollouts // GROUP_SIZE, GROUP_SIZE, environment=GRADED)
            cpu.append((cpu_seconds() - used) / rollouts * 1e3)
    what = "2 turns, 1 command, verification: CPU of all processes a rollout"
    return [Row(what, f"{statistics.median(cpu):.0f} ms", "≤ 130 ms")]


async def width(measured: Bench, few: int = 100, many: int = 1_000) -> list[Row]:
    """`many` rollouts of three turns and two commands at once, beside `few` before and after them."""
    async with measured.model(Script(conversations=(terminal_turns(2, SCORES),))) as url:
        begin = await rate(measured, url, few)
        sampling = asyncio.create_task(peak_memory())
        wide = await rate(measured, url, many)
        sampling.cancel()
        narrow = [begin, await rate(measured, url, few)]
    return [
        Row(f"{few} rollouts of 3 turns at once", f"{statistics.median(narrow):.1f} rollouts/s"),
        Row(f"{many:,} at once", f"{wide:.1f} rollouts/s"),
        Row("ratio", ratio([wide, wide], narrow), "≥ 0.9"),
        Row(f"memory of {many:,} at once, everything", f"{await sampling / 2**30:.1f} GiB", "≤ 2.4 GB"),
    ]


async def rate(measured: Bench, url: str, rollouts: int) -> float:
    """Rollouts a second, all of them open at once."""
    _, seconds = await measured.rollouts(url, rollouts // GROUP_SIZE, GROUP_SIZE, environment=GRADED)
    return rollouts / seconds


async def peak_memory() -> int:
    """The most bytes that were used, by everything, until this is cancelled."""
    most = 0
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            most = max(most, await asyncio.to_thread(memory_bytes))
    return most
