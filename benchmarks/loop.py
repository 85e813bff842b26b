"""The agent loop: time a turn, throughput beside bare Temporal, and bytes of history."""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bare import WORKFLOWS, BareRollout
from benchmarks.cpu import adopted_orphans, cpu_seconds
from benchmarks.table import Row, ratio
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers.keys import call_key, turn_key
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.processes.roles import process_layout
from clotho.rollouts.call import CallEntry
from clotho.rollouts.task_queues import TaskQueues
from clotho.rollouts.turn import TurnEntry
from clotho.run_settings import CheckpointPolicy, RunSettings
from clotho.runs.campaigns import CampaignHandle
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn, terminal_turns
from clotho.worker_settings import WorkerSettings
from tests.cluster import Cluster, cluster_in

AS_SERVED = {"CLOTHO_WORKER__CACHED_SECONDS": str(WorkerSettings().cached_seconds)}
"""What users have, of the settings that workers of tests are started with."""
LOOP, GRADED = "benchmarks.environments:Loop", "benchmarks.environments:Graded"
AROUND = 2
"""Steps of a rollout without a sandbox beside its turns and calls: verify, write end."""
NO_OP = ScriptedTurn(calls=(ScriptedCall(name="todo", arguments={}),))
DONE = ScriptedTurn(content="Done.")


@dataclass
class Bench:
    """A server, workers laid out as by default, and a way to start scripted models."""

    cluster: Cluster
    folder: Path
    runs: int = 0

    async def rollouts(
        self,
        url: str,
        groups: int = 1,
        group_size: int = 1,
        checkpoints: CheckpointPolicy = CheckpointPolicy.EVERY_TURN,
        environment: str = LOOP,
    ) -> tuple[str, float]:
        """Run them; returns the run's name and the seconds it took."""
        clock = time.perf_counter()
        name, handle = await self.start(url, groups, group_size, checkpoints, environment)
        await handle.result()
        return name, time.perf_counter() - clock

    async def start(
        self,
        url: str,
        groups: int,
        group_size: int,
        checkpoints: CheckpointPolicy = CheckpointPolicy.EVERY_TURN,
        environment: str = LOOP,
    ) -> tuple[str, CampaignHandle]:
        """Start them, all at once; returns the run's name too."""
        self.runs += 1
        name = f"bench-{self.runs}"
        handle = await self.cluster.start(
            name,
            url,
            environment=environment,
            groups=groups,
            group_size=group_size,
            max_open_groups=groups,
            settings=RunSettings(checkpoints=checkpoints),
            task_queues=TaskQueues(),
        )
        return name, handle

    @asynccontextmanager
    async def model(self, script: Script) -> AsyncIterator[str]:
        """A scripted model in a process of its own, so that it takes no time from this one."""
        path = self.folder / f"script-{self.runs}-{free_port()}.json"
        path.write_text(script.model_dump_json())
        port = free_port()
        command = [sys.executable, "-m", "clotho.testing.scripted_model", str(path), "--port", str(port)]
        process = ChildProcess(command, self.folder / "model.log")
        await process.start()
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            await process.stop()


@asynccontextmanager
async def bench(kind: type[Cluster] = Cluster) -> AsyncIterator[Bench]:
    with adopted_orphans(), tempfile.TemporaryDirectory(prefix="clotho-bench-") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)
        binary = await temporal_binary()
        server = TemporalServer(binary, folder / "temporal.log", ui_port=None, db=folder / "temporal.db")
        async with server, cluster_in(server, folder / "cluster", "default", kind) as cluster:
            for roles in process_layout(roles=None, processes=None):
                await cluster.start_worker(",".join(roles), **AS_SERVED)
            measured = Bench(cluster, folder)
            async with measured.model(Script(conversations=(terminal_turns(2),))) as url:
                await measured.rollouts(url)
            yield measured


async def turn_overhead(measured: Bench, turns: int = 20, repeats: int = 3) -> list[Row]:
    """One rollout of `turns` turns with the command `true`, against an instant model."""
    totals, overheads = [], []
    async with measured.model(Script(conversations=(terminal_turns(turns),))) as url:
        for _ in range(repeats):
            name, _ = await measured.rollouts(url)
            total, own = await turn_times(measured.cluster, f"{name}/g000000/r0", turns)
            totals.append(total / turns * 1e3)
            overheads.append((total - own) / turns * 1e3)
    return [
        Row("a turn with one command, in all", f"{statistics.median(totals):.1f} ms"),
        Row(
            "… beyond the model's answer and the command", f"{statistics.median(overheads):.1f} ms", "≤ 12 ms"
        ),
    ]


async def turn_times(cluster: Cluster, rollout: str, turns: int) -> tuple[float, float]:
    """Seconds from the first turn's start to the last command's end, and how many the calls took themselves."""
    journal = cluster.open_journal()
    sampled = await journal.read_many([turn_key(rollout, turn) for turn in range(turns)], TurnEntry)
    calls = await journal.read_many([call_key(rollout, f"{turn:04}-00") for turn in range(turns)], CallEntry)
    answers = [entry.sampled for entry in sampled if entry and entry.sampled]
    made = [entry for entry in calls if entry]
    total = made[-1].started + made[-1].seconds - answers[0].started
    return total, sum(answer.seconds for answer in answers) + sum(call.seconds for call in made)


async def throughput(measured: Bench, rollouts: int = 100, turns: int = 10, repeats: int = 3) -> list[Row]:
    """`rollouts` at once with an instant model and a tool that does nothing, beside bare Temporal, in turns."""
    script = Script(conversations=(Conversation(variants=((*[NO_OP] * turns, DONE),)),))
    clotho, bare, cpu = [], [], []
    async with bare_workers(measured), measured.model(script) as url:
        await bare_rollouts(measured.cluster, "warm", 5, turns)
        for number in range(repeats):
            used = cpu_seconds()
            _, seconds = await measured.rollouts(url, groups=rollouts // 4, group_size=4)
            clotho.append(rollouts * turns / seconds)
            cpu.append((cpu_seconds() - used) / rollouts * 1e3)
            seconds = await bare_rollouts(measured.cluster, str(number), rollouts, turns)
            bare.append(rollouts * turns / seconds)
    return [
        Row(f"{rollouts} rollouts × {turns} turns", f"{statistics.median(clotho):.0f} turns/s"),
        Row("… CPU of all processes a rollout", f"{statistics.median(cpu):.0f} ms", "≤ 150 ms"),
        Row("bare Temporal, as many empty activities", f"{statistics.median(bare):.0f} turns/s"),
        Row("ratio of the medians", ratio(clotho, bare), "≥ 2"),
    ]


@asynccontextmanager
async def bare_workers(measured: Bench) -> AsyncIterator[None]:
    """Two processes of bare Temporal's workers."""
    async with AsyncExitStack() as stack:
        for role in ("llm", "tools"):
            command = [sys.executable, "-m", "benchmarks.bare", measured.cluster.address, role]
            process = ChildProcess(command, measured.folder / "bare.log")
            await process.start()
            stack.push_async_callback(process.stop)
        yield


async def bare_rollouts(cluster: Cluster, name: str, rollouts: int, turns: int) -> float:
    clock = time.perf_counter()
    handles = [
        await cluster.client.start_workflow(
            BareRollout.run, args=[turns, AROUND + 1], id=f"bare-{name}-{number}", task_queue=WORKFLOWS
        )
        for number in range(rollouts)
    ]
    await asyncio.gather(*(handle.result() for handle in handles))
    return time.perf_counter() - clock


async def history(measured: Bench) -> list[Row]:
    """Bytes of history a turn, with 10 KB of output in each."""
    short, long = 5, 50
    sizes = {turns: await history_size(measured, turns) for turns in (short, long)}
    rows = [
        Row(f"history at {turns} turns with 10 KB of output", f"{size / turns:,.0f} B/turn", "≤ 3 KB")
        for turns, size in sizes.items()
    ]
    further = (sizes[long] - sizes[short]) / (long - short)
    return [*rows, Row("… of each turn between these", f"{further:,.0f} B", "≤ 1,300 B")]


async def history_size(measured: Bench, turns: int) -> int:
    """Bytes of all events of one rollout."""
    script = Script(conversations=(terminal_turns(turns, "head -c 10000 /dev/zero | tr '\\0' y"),))
    async with measured.model(script) as url:
        name, _ = await measured.rollouts(url)
    found = await measured.cluster.client.get_workflow_handle(f"{name}/g000000/r0").fetch_history()
    return sum(event.ByteSize() for event in found.events)
