"""A campaign of a million empty rollouts, in part: `python -m benchmarks.campaign --write docs/performance.md`.

An agent that does nothing answers each item, so that what remains is the campaign, its groups and their rollouts.
"""

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.campaign_histories import Histories, histories_of
from benchmarks.cpu import cpu_seconds
from benchmarks.loop import AS_SERVED
from benchmarks.machine import machine
from benchmarks.production import served_by, until_registered
from benchmarks.table import Row
from clotho.identifiers.ids import group_id
from clotho.identifiers.keys import scored_key
from clotho.journal import Journal
from clotho.processes.child import ChildProcess
from clotho.processes.roles import process_layout
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.campaign import CampaignProgress, CampaignRequest
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import Item
from clotho.rollouts.run import RunManifest
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.campaigns import start_requested
from clotho.runs.items import enumerate_items
from clotho.runs.manifest import open_run
from clotho.runs.request import run_manifest
from tests.cluster import Cluster, cluster_in

BEGIN, END = "<!-- campaign: begin -->", "<!-- campaign: end -->"
ON_POSTGRESQL = "<!-- campaign on PostgreSQL: begin -->", "<!-- campaign on PostgreSQL: end -->"
NAMESPACE = "campaign"
ENVIRONMENT = "benchmarks.environments:Loop"
RUN = "empty"
MILLION = 1_000_000
POSITIONS = (0, 500_000, 990_000)
ALONE_AT, ALONE = 750_000, 200
"""Groups of which one runs at a time: the campaign's tasks wait for no processor."""
SCORED = 20_000
"""Groups that are scored before a campaign begins at its first item."""
ENTRIES_AT_ONCE = 100


@dataclass(frozen=True)
class Part:
    """Some groups of the campaign, from one of its items on."""

    first: int
    groups: int
    seconds: float
    cpu_seconds: float
    histories: Histories
    workers_bytes: int
    temporal_bytes: int

    @property
    def rate(self) -> float:
        return self.groups / self.seconds


@dataclass
class Bench:
    cluster: Cluster
    temporal: ChildProcess
    manifest: RunManifest
    open_groups: int

    def request(self, first: int, last: int, open_groups: int | None = None) -> CampaignRequest:
        """The request with which a campaign begins at item `first`; after item 0, as it continues as new there."""
        return CampaignRequest(
            run=RUN,
            environment=ENVIRONMENT,
            groups=last,
            group_size=1,
            limits=self.manifest.limits,
            task_queues=TaskQueues(),
            max_open_groups=open_groups or self.open_groups,
            next_group=first,
            progress=CampaignProgress(groups=last, scored=first) if first else None,
        )

    async def roll_out(self, first: int, groups: int, open_groups: int | None = None) -> Part:
        clock, used = time.perf_counter(), cpu_seconds()
        handle = await start_requested(self.cluster.client, self.request(first, first + groups, open_groups))
        done = await handle.result()
        seconds, cpu = time.perf_counter() - clock, cpu_seconds() - used
        assert (done.scored, done.failed) == (first + groups, 0), done
        return Part(
            first=first,
            groups=groups,
            seconds=seconds,
            cpu_seconds=cpu,
            histories=await histories_of(self.cluster.client, handle),
            workers_bytes=sum(map(resident_bytes, self.cluster.workers)),
            temporal_bytes=resident_bytes(self.temporal),
        )

    async def begin_again(self) -> Row:
        """Start a campaign at its first item, whose groups are scored as far as it is to go."""
        await copy_scored(self.cluster.open_journal())
        clock = time.perf_counter()
        done = await (await start_requested(self.cluster.client, self.request(0, SCORED))).result()
        seconds = time.perf_counter() - clock
        assert (done.skipped, done.scored) == (SCORED, 0), done
        return Row(f"a start that finds {SCORED:,} groups scored", f"{SCORED / seconds:,.0f} groups/s")


async def measure(groups: int, open_groups: int, postgresql: bool = False) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="clotho-bench-") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)
        async with (
            served_by(folder, postgresql=postgresql) as server,
            cluster_in(server, folder / "cluster", NAMESPACE) as cluster,
        ):
            if postgresql:
                await until_registered(cluster.client)
            for roles in process_layout(roles=None, processes=None):
                await cluster.start_worker(",".join(roles), **AS_SERVED)
            manifest = run_manifest(ENVIRONMENT, RUN, "nop", agent=Agent(kind=AgentKind.NOP), group_size=1)
            await open_run(cluster.open_journal(), manifest, None)
            bench = Bench(cluster, server.process, manifest, open_groups)
            rows = [await write_items(cluster)]
            await bench.roll_out(MILLION - open_groups, open_groups)  # the workers load what they need
            before = await server.database_bytes()
            parts = [await bench.roll_out(first, groups) for first in POSITIONS]
            grown = await server.database_bytes() - before
            alone = await bench.roll_out(ALONE_AT, ALONE, open_groups=1)
            rows += [
                *rows_of(parts),
                *room_of(parts, alone),
                *await asyncio.to_thread(on_disk, cluster.store, grown, parts),
            ]
            return [*rows, await bench.begin_again()]


async def write_items(cluster: Cluster) -> Row:
    drawn = 0

    async def draw(number: int) -> tuple[Item, ...]:
        nonlocal drawn
        drawn += number
        return tuple({"number": each} for each in range(drawn - number, drawn))

    clock = time.perf_counter()
    assert await enumerate_items(cluster.open_journal(), RUN, draw, MILLION) == MILLION
    return Row(f"{MILLION:,} items written into the store", f"{time.perf_counter() - clock:.0f} s")


async def copy_scored(journal: Journal) -> None:
    """Write the scored group of the first item for each of the next, without the rest of it."""
    scored = await journal.read_required(scored_key(group_id(RUN, 0)), GroupEntry)
    for part in range(0, SCORED, ENTRIES_AT_ONCE):
        groups = [group_id(RUN, item) for item in range(part, part + ENTRIES_AT_ONCE)]
        await asyncio.gather(*(journal.write(scored_key(group), scored) for group in groups))


def rows_of(parts: list[Part]) -> list[Row]:
    groups, seconds = sum(part.groups for part in parts), sum(part.seconds for part in parts)
    rows = []
    for part in parts:
        told = part.histories
        memory = f"{megabytes(part.workers_bytes)}, Temporal's server {megabytes(part.temporal_bytes)}"
        rows += [
            Row(f"{part.groups:,} groups from item {part.first:,} on", f"{part.rate:.1f} groups/s"),
            Row("… CPU of all processes a group", f"{part.cpu_seconds / part.groups * 1e3:.0f} ms"),
            Row("… runs of the campaign's workflow", f"{told.runs}"),
            Row(
                "… the longest history",
                f"{told.most_events:,} events, {told.most_bytes / 2**20:.2f} MiB",
                "≤ 51,200 events, 50 MiB",
            ),
            Row("… history of the campaign a group", f"{told.all_bytes / part.groups:,.0f} B"),
            Row(
                "… the campaign's own tasks",
                f"{told.tasks / part.groups:.2f} a group, {told.open_seconds / part.seconds:.0%} of the time",
            ),
            Row("… memory of the workers at the end", memory, "flat"),
        ]
    hours = MILLION / groups * seconds / 3600
    return [*rows, Row(f"{MILLION:,} groups at the mean rate of these", f"{hours:.0f} h on this machine")]


def room_of(parts: list[Part], alone: Part) -> list[Row]:
    """How many groups a second one campaign has time for where processors are free."""
    task = alone.histories.open_seconds / alone.histories.tasks
    tasks = sum(part.histories.tasks for part in parts) / sum(part.groups for part in parts)
    return [
        Row("a task of the campaign, one group running at a time", f"{task * 1e3:.1f} ms"),
        Row(
            f"… at {tasks:.2f} tasks a group, groups that one campaign has time for",
            f"{1 / task / tasks:.0f}/s",
        ),
    ]


def on_disk(store: Path, grown: int, parts: list[Part]) -> list[Row]:
    """The files of the groups' journal, and what Temporal's database has `grown` by, which keeps them for a day."""
    groups = sum(part.groups for part in parts)
    files = [path.stat() for path in (store / RUN).glob("g*/**/*") if path.is_file()]
    blocks = sum(file.st_blocks for file in files) * 512
    return [
        Row("files in the store a group", f"{len(files) / groups:.1f}, {blocks / groups / 1024:.0f} KiB"),
        Row("Temporal's database a group", f"{grown / groups / 1024:.0f} KiB"),
    ]


def resident_bytes(process: ChildProcess) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) << 10


def megabytes(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"


def markdown(rows: list[Row]) -> str:
    lines = [f"Measured on {machine()}.", "", "| | measured | aim |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {row.what} | {row.figure} | {row.aim} |" for row in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaign")
    parser.add_argument("--groups", type=int, default=1_000, help="groups from each position on")
    parser.add_argument("--open", type=int, default=16, help="groups that run at once")
    parser.add_argument("--write", type=Path, help="a document with the marks between which the table goes")
    parser.add_argument(
        "--postgresql", action="store_true", help="on Temporal's production server: takes root and Go"
    )
    options = parser.parse_args()
    rows = asyncio.run(measure(options.groups, options.open, options.postgresql))
    table = Table("", "measured", "aim", title=machine())
    for row in rows:
        table.add_row(row.what, row.figure, row.aim)
    Console().print(table)
    if options.write:
        begin, end = ON_POSTGRESQL if options.postgresql else (BEGIN, END)
        head, _, rest = options.write.read_text().partition(begin)
        tail = rest.partition(end)[2]
        options.write.write_text(f"{head}{begin}\n{markdown(rows)}\n{end}{tail}")


if __name__ == "__main__":
    main()
