"""Training through Atropos: Clotho's adapter beside Atropos' own in-memory loop, and what the adapter adds."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError

from benchmarks.adapter_start import adapter_start
from benchmarks.cpu import cpu_seconds
from benchmarks.delivery import delivery, turn_cost
from benchmarks.exactness import exactness
from benchmarks.in_memory import lease_name
from benchmarks.loop import Bench
from benchmarks.queueing import queueing
from benchmarks.table import Row
from benchmarks.trainers_end import POLL, Group, TrainersEnd, trainers_end
from clotho.config import Settings
from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.errors import Unavailable
from clotho.identifiers.ids import is_rollout
from clotho.plugins.demo.kill_processes import files_of_lease
from clotho.processes.child import ChildProcess
from clotho.sandbox.registry import open_backend
from clotho.temporal.search_attributes import RUN
from tests.cluster import Cluster

GROUP_SIZE = 4
WIDTHS = (16, 64)
"""Rollouts at once."""
WINDOW, WAVES = 15.0, 3
"""Least seconds that are counted, and least groups, in multiples of those at once.

All begin at the same time, so they come in waves at first: a window shorter than a wave counts by its luck.
"""
CHECKED_GROUPS = 24
MOST_ROLLOUTS = 10_000
PATIENCE = 240.0
COMMON = {
    "tokenizer_name": str(BUNDLED),
    "group_size": GROUP_SIZE,
    "use_wandb": False,
    "ensure_scores_are_not_same": False,
    "steps_per_eval": -1,
    "total_steps": 1_000_000,
    "max_batches_offpolicy": 1_000,
}


async def measure(measured: Bench) -> list[Row]:
    """Both sides deliver to Atropos' own API, one after the other, from the same model server."""
    cluster, folder = measured.cluster, measured.folder
    async with EmbeddedModelServer(folder / "policy.log") as policy, trainers_end(folder / "api.log") as api:
        start = await adapter_start(
            lambda url: durable(cluster, "start", policy.url, rollout_server_url=url), folder / "start.log"
        )
        rows = []
        for rollouts in WIDTHS:
            groups = rollouts // GROUP_SIZE
            shared = {"rollout_server_url": api.url, "max_num_workers": groups}
            beside = ChildProcess(in_memory(folder, policy.url, **shared), folder / f"memory-{rollouts}.log")
            try:
                theirs = await pace(api, beside, groups)
            finally:
                await empty(folder / "in-memory")
            run = f"training-{rollouts}"
            adapter = ChildProcess(durable(cluster, run, policy.url, **shared), folder / f"{run}.log")
            ours = await pace(api, adapter, groups)
            await end_rollouts(cluster.client, run)
            ratio = ours.groups_a_minute / theirs.groups_a_minute
            rows += [
                Row(f"{rollouts} rollouts at once, Atropos' loop in memory", str(theirs), "side by side"),
                Row(f"{rollouts} rollouts at once, through Clotho", str(ours), "side by side"),
                Row("ratio", f"{ratio:.2f}", "≥ 0.8"),
            ]
            if rollouts == WIDTHS[0]:
                exact = await exactness(cluster.open_journal(), policy.url, ours.taken[:CHECKED_GROUPS])
        cost = await turn_cost(folder / "turn-cost")
        sent = await delivery(api, folder / "delivery")
    return [*rows, *exact, *cost, *sent, *await queueing(folder), *start]


@dataclass(frozen=True)
class Pace:
    """The rate of groups after the first wave, and their number."""

    groups_a_minute: float
    cpu_ms: float
    """Processor time of a rollout, with everything that served it."""
    taken: list[Group]

    def __str__(self) -> str:
        return f"{self.groups_a_minute:.0f} groups/min, {self.cpu_ms:.0f} ms of CPU a rollout"


async def pace(api: TrainersEnd, environment: ChildProcess, at_once: int) -> Pace:
    """The pace of the groups that the trainer takes from `environment`."""
    await api.begin(GROUP_SIZE)
    await environment.start()
    taken: list[Group] = []
    last = 0.0

    async def take(done: Callable[[], bool]) -> None:
        nonlocal last
        while not done():
            taken.extend(batch := await api.batch())
            if not environment.running:
                raise Unavailable(f"{environment.log}: {environment.last_words}")
            if batch:
                last = time.perf_counter()
            else:
                await asyncio.sleep(POLL)

    try:
        async with asyncio.timeout(PATIENCE):
            await take(lambda: len(taken) >= at_once)
            before, begun, cpu = len(taken), last, cpu_seconds()
            await take(lambda: len(taken) >= before + WAVES * at_once and last - begun >= WINDOW)
        groups = len(taken) - before
        cpu_ms = (cpu_seconds() - cpu) / (groups * GROUP_SIZE) * 1e3
        return Pace(groups / (last - begun) * 60, cpu_ms, taken)
    finally:
        await environment.kill()


def in_memory(folder: Path, model_url: str, **fields: object) -> list[str]:
    """The baseline's command line."""
    module = [sys.executable, "-m", "benchmarks.in_memory", "serve"]
    return [*module, *_flags(model_url, sandboxes=folder / "in-memory", wandb_name="in-memory", **fields)]


def durable(cluster: Cluster, run: str, model_url: str, **fields: object) -> list[str]:
    """The adapter's command line, on the store and the Temporal server of `cluster`."""
    variables = {
        "CLOTHO_TEMPORAL__NAMESPACE": cluster.client.namespace,
        "CLOTHO_SANDBOX__ROOT": cluster.folder / "sandboxes",
    }
    flags = _flags(
        model_url,
        run=run,
        environment="file_tasks",
        store=cluster.store_location,
        temporal=cluster.address,
        **fields,
    )
    assignments = [f"{name}={value}" for name, value in variables.items()]
    return ["env", *assignments, sys.executable, "atropos_adapter.py", "serve", *flags]


def _flags(model_url: str, **fields: object) -> list[str]:
    server = {
        "base_url": f"{model_url}/v1",
        "model_name": TINY,
        "api_key": "none",
        "health_check": False,
    }
    flags = [f"--env.{name}={value}" for name, value in {**COMMON, **fields}.items()]
    return [*flags, *(f"--openai.{name}={value}" for name, value in server.items())]


async def empty(root: Path) -> None:
    """Destroy what the killed baseline left, sandboxes that it was just making too: no lease tells of those."""
    backend = open_backend(Settings(), root)
    for lease in map(lease_name, range(MOST_ROLLOUTS)):
        if files_of_lease(root, lease).exists():
            await backend.destroy(lease)


async def end_rollouts(client: Client, run: str) -> None:
    """Cancel the groups that the killed adapter left running, and wait for their ends."""
    query = f"{RUN} = '{run}' AND ExecutionStatus = 'Running'"
    while running := [execution.id async for execution in client.list_workflows(query)]:
        await _cancel(client, [name for name in running if not is_rollout(name)])
        await asyncio.sleep(0.5)


async def _cancel(client: Client, groups: Sequence[str]) -> None:
    for group in groups:
        # It may have ended meanwhile.
        with contextlib.suppress(RPCError):
            await client.get_workflow_handle(group).cancel()
