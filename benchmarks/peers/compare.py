"""Cost of Clotho's loop beside that of others, with the same scripted model and a tool that does nothing."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cpu import cpu_seconds
from benchmarks.loop import DONE, NO_OP, Bench
from benchmarks.table import Row, ratio
from clotho.errors import Unavailable
from clotho.testing.script import Conversation, Script

HERE = Path(__file__).parent
PACKAGES = HERE.parents[1] / ".venv/peers"
ROLLOUTS, TURNS, REPEATS = 100, 10, 3
ANSWER = b"turns "

Run = Callable[[int], Awaitable[None]]


@dataclass
class Cost:
    """What the rollouts of each repetition took."""

    cpu_ms: list[float] = field(default_factory=list)
    """CPU time of a rollout, of all processes."""
    rate: list[float] = field(default_factory=list)
    """Rollouts a second."""

    async def of(self, run: Run, number: int) -> None:
        used, clock = cpu_seconds(), time.perf_counter()
        await run(number)
        self.rate.append(ROLLOUTS / (time.perf_counter() - clock))
        self.cpu_ms.append((cpu_seconds() - used) / ROLLOUTS * 1e3)

    def __str__(self) -> str:
        return (
            f"{statistics.median(self.cpu_ms):.0f} ms of CPU, {statistics.median(self.rate):.1f} rollouts/s"
        )


async def measure(measured: Bench) -> list[Row]:
    """All sides take turns; the first run of each doesn't count."""
    what = f"{ROLLOUTS} rollouts × {TURNS} turns"
    if not (PACKAGES / ".complete").exists():
        return [Row(what, "not run here: `make bench-peers` installs the others' packages")]
    script = Script(conversations=(Conversation(variants=((*[NO_OP] * TURNS, DONE),)),))
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(measured.model(script))
        peers = {
            "Inspect AI, in memory": await stack.enter_async_context(
                _peer(measured.folder, "inspect_loop.py", url)
            ),
            "the OpenAI Agents SDK on Temporal": await stack.enter_async_context(
                _peer(measured.folder, "openai_agents_loop.py", url, measured.cluster.address)
            ),
        }

        async def clotho(number: int) -> None:
            await measured.rollouts(url, groups=ROLLOUTS // 4, group_size=4)

        sides: dict[str, Run] = {"Clotho": clotho, **peers}
        costs = {name: Cost() for name in sides}
        for number in range(REPEATS + 1):
            for name, run in sides.items():
                await (costs[name] if number else Cost()).of(run, number)
    ours, (in_memory, on_temporal) = costs["Clotho"], [costs[name] for name in peers]
    first, second = peers
    return [
        *(Row(f"{what}: {name}", str(cost)) for name, cost in costs.items()),
        Row(f"CPU, ratio to {first}", ratio(ours.cpu_ms, in_memory.cpu_ms), "≤ 1.3"),
        Row(f"CPU, ratio to {second}", ratio(ours.cpu_ms, on_temporal.cpu_ms), "≤ 0.3"),
        Row(f"rollouts/s, ratio to {first}", ratio(ours.rate, in_memory.rate)),
        Row(f"rollouts/s, ratio to {second}", ratio(ours.rate, on_temporal.rate)),
    ]


@asynccontextmanager
async def _peer(folder: Path, script: str, url: str, *arguments: str) -> AsyncIterator[Run]:
    """A process that runs the rollouts once for each line, and answers with the turns that they took."""
    quiet = ("INSPECT_DISPLAY=none", "OPENAI_AGENTS_DISABLE_TRACING=1")
    command = (
        "env",
        *quiet,
        str(PACKAGES / "bin/python"),
        str(HERE / script),
        url,
        str(ROLLOUTS),
        *arguments,
    )
    pipe = asyncio.subprocess.PIPE
    with open(folder / f"{script}.log", "wb") as log:  # noqa: ASYNC230
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=log)
    assert process.stdin is not None and process.stdout is not None
    asked, answers = process.stdin, process.stdout

    async def run(number: int) -> None:
        asked.write(f"{number}\n".encode())
        while (line := await answers.readline()) and not line.startswith(ANSWER):
            pass  # Temporal's SDK warns on the same output
        if line.removeprefix(ANSWER).split() != [str(TURNS + 1).encode()]:
            raise Unavailable(f"{script} didn't make {TURNS + 1} turns a rollout: {line!r}, {log.name}")

    try:
        yield run
    finally:
        asked.close()
        await process.wait()
