"""One cell of the cluster's table: a fault strikes a run over three hosts; the rest is waiting and counting."""

import asyncio
import time

from temporalio.service import RPCError

from chaos.cell import outcome_in
from chaos.cluster.faults import STRUCK, ClusterFault
from chaos.cluster.stage import ClusterServers, ClusterStage, cluster_stage_on
from chaos.results import CellResult, Run, compare
from chaos.waiting import NotReached
from clotho.errors import ClothoError
from clotho.plugins.demo.provider import duplicate_calls
from clotho.runs.campaigns import CampaignHandle

PHASE = "cluster"
COMPLETION_SECONDS = 420.0
ORPHAN_SECONDS = 150.0
"""The reaper of a host looks once a minute, and one that was dead has to start before."""
POLL_SECONDS = 0.25


class ClusterResult(CellResult):
    repaid_by_partition: int = 0
    """Answers paid twice since their host was cut off from the store for so long that it was taken for gone."""

    @property
    def footnotes(self) -> list[str]:
        notes = [f"¹({self.bill.died})"] if self.bill.died else []
        notes += [f"²({self.repaid_by_partition})"] if self.repaid_by_partition else []
        return notes


async def undisturbed(servers: ClusterServers) -> Run:
    name = f"undisturbed-{time.time_ns():x}"
    async with cluster_stage_on(servers, name, latency=0.0, clocks={}) as stage:
        await stage.start_hosts(stage.hosts)
        await completion(stage, await stage.start_campaign())
        return await outcome_in(stage.journal)


async def play(
    servers: ClusterServers, name: str, fault: ClusterFault, expected: Run | None = None
) -> ClusterResult:
    """Without an `expected` run, neither rewards nor the commands that should have run are compared."""
    result, clock = ClusterResult(fault=name, phase=PHASE, recovery_limit=fault.recovery), time.monotonic()
    try:
        async with cluster_stage_on(
            servers,
            f"{name}-{time.time_ns():x}",
            latency=fault.latency,
            clocks=fault.clocks,
            small_disks=(STRUCK,) if fault.small_disk else (),
        ) as stage:
            result = await measured(stage, fault, expected, result)
    except (NotReached, ClothoError, RPCError, RuntimeError) as problem:
        result = result.model_copy(update={"problem": str(problem)[:400]})
    await servers.mend()
    return result.model_copy(update={"seconds": round(time.monotonic() - clock, 1)})


async def measured(
    stage: ClusterStage, fault: ClusterFault, expected: Run | None, result: ClusterResult
) -> ClusterResult:
    await stage.start_hosts(stage.hosts)
    running = asyncio.create_task(completion(stage, await stage.start_campaign()))
    recovering: asyncio.Task[float] | None = None
    try:
        await reached(stage, fault, running)
        if not fault.counts_from_end:
            recovering = asyncio.create_task(slowest(stage))
        await fault.strike(stage)
        if recovering is None:
            recovering = asyncio.create_task(slowest(stage))
        await running
        seconds = await recovering
    finally:
        tasks = [task for task in (running, recovering) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    bill = duplicate_calls(stage.provider.calls, stage.deaths)
    if fault.partition:
        result = result.model_copy(update={"repaid_by_partition": bill.repaid})
        bill = bill.model_copy(update={"repaid": 0})
    found = {"bill": bill, "recovery": round(seconds, 1), "orphans": tuple(await orphaned(stage))}
    run = await outcome_in(stage.journal)
    counted = result.model_copy(update=found)
    return compare(counted, run, expected or _once_each(stage, run))


def _once_each(stage: ClusterStage, run: Run) -> Run:
    """Every rollout with the reward that it has, or with none, and each of its commands once."""
    rewards = {place: run.rewards.get(place, 0.0) for place in stage.rollouts()}
    return Run(rewards=rewards, marks={place: dict.fromkeys(ran, 1) for place, ran in run.marks.items()})


async def reached(stage: ClusterStage, fault: ClusterFault, running: "asyncio.Task[None]") -> None:
    """Return when so many calls were asked for, and a host that is to be lost has a sandbox.

    Raises NotReached where the run ends before.
    """
    while len(stage.provider.calls) < fault.asked_before * len(stage.rollouts()) or (
        fault.loses_host and not await stage.has_sandbox(STRUCK)
    ):
        if running.done():
            await running
            raise NotReached("the run ended before it could be struck")
        await asyncio.sleep(POLL_SECONDS)


async def completion(stage: ClusterStage, handle: CampaignHandle) -> None:
    try:
        async with asyncio.timeout(COMPLETION_SECONDS):
            await handle.result()
    except TimeoutError:
        raise NotReached(f"its end within {COMPLETION_SECONDS:g} s; {stage.last_words}") from None


async def slowest(stage: ClusterStage) -> float:
    """Seconds until each rollout that has begun and isn't sealed has another entry in the journal."""
    since = time.monotonic()
    known = await asyncio.to_thread(stage.entries)
    waiting = {
        rollout: keys
        for rollout, keys in known.items()
        if keys and not any(key.endswith("/sealed") for key in keys)
    }
    seconds = 0.0
    while waiting:
        await asyncio.sleep(POLL_SECONDS)
        now = await asyncio.to_thread(stage.entries)
        for rollout in [each for each, keys in waiting.items() if now[each] - keys]:
            del waiting[rollout]
            seconds = time.monotonic() - since
    return seconds


async def orphaned(stage: ClusterStage) -> list[str]:
    """The sandboxes that are left when every host has its worker again, which looks after them."""
    dead = [number for number, host in stage.hosts.items() if not host.worker.running]
    if dead:
        await stage.start_again(dead)
    deadline = time.monotonic() + ORPHAN_SECONDS
    while True:
        left = await stage.left_over()
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(1)
