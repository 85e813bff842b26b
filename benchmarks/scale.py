"""Many rollouts open at once on Temporal's production server, with turns as slow as a real model's.

    python -m benchmarks.scale --rollouts 1000 --seconds 20 --write docs/performance.md

The model server sleeps, so that what is seen are Temporal, its database and the workers.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError

from benchmarks.cpu import cpu_seconds, memory_bytes
from benchmarks.loop import AS_SERVED, DONE, LOOP, NO_OP, Bench
from benchmarks.machine import machine
from benchmarks.production import Served, served_by, until_registered
from benchmarks.table import Row
from clotho.cli.doctor.cluster import queue_states
from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import turn_key
from clotho.rollouts.task_queues import TaskQueues
from clotho.rollouts.turn import TurnEntry
from clotho.temporal.search_attributes import RUN as RUN_ATTRIBUTE
from clotho.testing.script import Conversation, Script
from tests.cluster import Cluster, cluster_in

BEGIN, END = "<!-- scale: begin -->", "<!-- scale: end -->"
RUN, NAMESPACE = "scale", "scale"
GROUP_SIZE = 8
LOOK_SECONDS = 2.0
HISTORIES = 300
"""Rollouts whose histories are read for workflow tasks that timed out; they are taken at equal distances."""


@dataclass(frozen=True)
class Size:
    rollouts: int
    seconds: float
    """The time of a turn."""
    turns: int
    processes: int


@dataclass
class Peaks:
    """The most that was seen of each at any look."""

    memory: dict[str, int] = field(default_factory=dict)
    open: int = 0
    """Rollouts."""
    backlog: int = 0
    oldest: float = 0.0
    looks: int = 0
    unanswered: int = 0
    """Looks at the queues that Temporal gave no answer to in time."""

    async def look(self, cluster: Cluster, server: Served) -> None:
        parts = {
            "workers": cluster.workers[0].pid,
            "Temporal": server.process.pid,
            "PostgreSQL": server.database_pid,
        }
        for part, process in parts.items():
            used = await asyncio.to_thread(memory_bytes, process)
            self.memory[part] = max(used, self.memory.get(part, 0))
        self.looks += 1
        running = f"{RUN_ATTRIBUTE} = '{RUN}' AND WorkflowType = 'Rollout' AND ExecutionStatus = 'Running'"
        try:
            self.open = max(self.open, (await cluster.client.count_workflows(running)).count)
            states = await queue_states(cluster.client)
        except RPCError:
            self.unanswered += 1
            return
        self.backlog = max(self.backlog, sum(state.backlog for state in states))
        self.oldest = max(self.oldest, *(state.oldest for state in states))


@asynccontextmanager
async def watched(cluster: Cluster, server: Served) -> AsyncIterator[Peaks]:
    peaks = Peaks()

    async def looking() -> None:
        while True:
            await peaks.look(cluster, server)
            await asyncio.sleep(LOOK_SECONDS)

    task = asyncio.create_task(looking())
    try:
        yield peaks
    finally:
        if task.done():
            task.result()
        task.cancel()


async def measure(size: Size) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="clotho-bench-") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)
        async with (
            served_by(folder, postgresql=True) as server,
            cluster_in(server, folder / "cluster", NAMESPACE) as cluster,
        ):
            await until_registered(cluster.client)
            most = str(-(-size.rollouts // size.processes) + 100)
            await cluster.start_worker(
                processes=str(size.processes),
                CLOTHO_WORKER__MAX_MODEL_CALLS=most,
                CLOTHO_WORKER__MAX_CACHED_WORKFLOWS=most,
                **AS_SERVED,
            )
            turns = (*[NO_OP] * (size.turns - 1), DONE)
            script = Script(conversations=(Conversation(variants=(turns,)),), latency=size.seconds)
            async with Bench(cluster, folder).model(script) as url, watched(cluster, server) as peaks:
                clock, used = time.perf_counter(), cpu_seconds()
                handle = await cluster.start(
                    RUN,
                    url,
                    environment=LOOP,
                    groups=size.rollouts // GROUP_SIZE,
                    group_size=GROUP_SIZE,
                    max_open_groups=size.rollouts // GROUP_SIZE,
                    task_queues=TaskQueues(),
                )
                done = await handle.result()
                seconds, cpu = time.perf_counter() - clock, cpu_seconds() - used
            assert done.scored == size.rollouts // GROUP_SIZE, done
            timed_out = await timed_out_tasks(cluster.client, size)
            gaps = await gaps_between_turns(cluster, size)
    return rows_of(size, peaks, seconds, cpu, timed_out, gaps)


def looked_at(size: Size) -> list[str]:
    step = max(1, size.rollouts // HISTORIES)
    numbers = range(0, size.rollouts, step)
    return [rollout_id(group_id(RUN, each // GROUP_SIZE), each % GROUP_SIZE) for each in numbers]


async def timed_out_tasks(client: Client, size: Size) -> int:
    """Workflow tasks, of the rollouts that are looked at, that no worker completed in time."""
    found = 0
    for rollout in looked_at(size):
        async for event in client.get_workflow_handle(rollout).fetch_history_events():
            found += event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT
    return found


async def gaps_between_turns(cluster: Cluster, size: Size) -> list[float]:
    """Seconds from a turn's answer until the next was asked for, sorted."""
    journal, gaps = cluster.open_journal(), list[float]()
    for rollout in looked_at(size):
        keys = [turn_key(rollout, turn) for turn in range(size.turns)]
        turns = [entry.sampled for entry in await journal.read_many(keys, TurnEntry) if entry is not None]
        asked = [turn for turn in turns if turn is not None]
        gaps += [after.started - before.started - before.seconds for before, after in pairwise(asked)]
    return sorted(gaps)


def rows_of(
    size: Size, peaks: Peaks, seconds: float, cpu: float, timed_out: int, gaps: list[float]
) -> list[Row]:
    groups = f"{size.rollouts // GROUP_SIZE:,} groups of {GROUP_SIZE}"
    what = f"{size.rollouts:,} rollouts at once in {groups}, {size.turns} turns of {size.seconds:g} s"
    least = size.turns * size.seconds
    middle, late = statistics.median(gaps), gaps[int(len(gaps) * 0.99)]
    memory = ", ".join(f"{part} {used / 2**20:,.0f} MiB" for part, used in peaks.memory.items())
    return [
        Row(
            f"{what}, {size.processes} worker processes: time",
            f"{seconds:.0f} s, of which turns {least:.0f} s",
        ),
        Row("… most of them open at once", f"{peaks.open:,}"),
        Row("… CPU of workers, server and database a rollout", f"{cpu / size.rollouts * 1e3:.0f} ms"),
        Row(f"… workflow tasks that timed out, of {len(looked_at(size))} rollouts", f"{timed_out}", "0"),
        Row(
            "… from a turn's answer to the next call: median, 99th percentile",
            f"{middle:.2f} s, {late:.2f} s",
        ),
        Row("… most memory", memory),
        Row("… longest backlog of the shared queues", f"{peaks.backlog:,} tasks, {peaks.oldest:.1f} s old"),
        Row("… looks at the queues without an answer", f"{peaks.unanswered} of {peaks.looks}"),
    ]


def markdown(rows: list[Row], before: str) -> str:
    """The table: rows of other sizes than that of `rows` are those of the table `before`."""
    sizes: dict[str, list[str]] = {}
    for line in [*before.splitlines(), *(f"| {row.what} | {row.figure} | {row.aim} |" for row in rows)]:
        # "| 1,000 rollouts at once in …" begins a size, whose further rows begin with "…"
        if " rollouts at once in " in line:
            size = line.partition(" rollouts ")[0]
            sizes[size] = [line]
        elif line.startswith("| …"):
            sizes[size].append(line)
    lines = [f"Measured on {machine()}.", "", "| | measured | aim |", "|---|---|---|"]
    return "\n".join([*lines, *(line for each in sizes.values() for line in each)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--rollouts", type=int, default=1_000, help="open at once")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=4, help="of a rollout")
    parser.add_argument("--processes", type=int, default=4, help="of workers")
    parser.add_argument("--write", type=Path, help="a document with the marks between which the table goes")
    options = parser.parse_args()
    rows = asyncio.run(measure(Size(options.rollouts, options.seconds, options.turns, options.processes)))
    table = Table("", "measured", "aim", title=machine())
    for row in rows:
        table.add_row(row.what, row.figure, row.aim)
    Console().print(table)
    if options.write:
        head, _, rest = options.write.read_text().partition(BEGIN)
        before, _, tail = rest.partition(END)
        options.write.write_text(f"{head}{BEGIN}\n{markdown(rows, before)}\n{END}{tail}")


if __name__ == "__main__":
    main()
