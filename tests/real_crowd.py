"""Many harnesses at once, while workers, sandboxes and harnesses are killed: `make test-crowd`.

All end, and nothing is paid twice. Not part of the suite: it takes both processors for three minutes.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from chaos.harness import tasks
from chaos.harness.scripts import SMALL, HarnessScript, is_installed
from chaos.stage import journalled, sandbox_folder_of
from clotho.identifiers.keys import reward_key
from clotho.plugins.demo.execution_markers import marks_in
from clotho.plugins.demo.kill_processes import kill_supervisors, processes_below, programs_of_lease
from clotho.plugins.demo.provider import Bill, Provider, duplicate_calls
from clotho.processes.child import ChildProcess
from clotho.rollouts.task_queues import TaskQueues
from clotho.rollouts.verification import RewardEntry
from clotho.runs.campaigns import CampaignHandle
from clotho.runs.groups import scored_groups
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually

GROUP_SIZE = 4
STRUCK = 4
"""Sandboxes that each fault strikes."""
LATENCY = 0.5
COMPLETION_SECONDS = 1500.0


@dataclass
class Crowd:
    """Runs beside each other on one cluster."""

    cluster: Cluster
    handles: dict[str, CampaignHandle] = field(default_factory=dict)
    providers: list[Provider] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)

    async def start(self, stack: AsyncExitStack, run: str, script: HarnessScript, rollouts: int) -> None:
        model = ScriptedModel(script.script().model_copy(update={"latency": LATENCY}))
        url = await stack.enter_async_context(serving(model))
        provider = Provider(url.removesuffix("/v1"), lambda key: journalled(self.cluster.store, key))
        provider.marks_commands = False
        self.providers.append(provider)
        self.handles[run] = await self.cluster.start(
            run,
            await stack.enter_async_context(serving(provider)),
            environment=script.environment,
            agent=script.agent,
            settings=script.settings,
            groups=rollouts // GROUP_SIZE,
            group_size=GROUP_SIZE,
            task_queues=TaskQueues(),
        )

    async def answered(self, calls: int) -> None:
        async def so_many() -> bool:
            return sum(call.answered for each in self.providers for call in each.calls) >= calls

        await eventually(so_many, f"{calls} answered calls", COMPLETION_SECONDS)

    async def kill(self, worker: ChildProcess) -> None:
        self.deaths.append(time.monotonic())
        await worker.kill()
        await worker.start()

    async def strike(self, hit: Callable[[str], Awaitable[bool]]) -> None:
        """Strike sandboxes in which a harness runs."""
        struck = set[str]()

        async def so_many() -> bool:
            for held in await self.cluster.sandboxes().leases():
                if len(struck) < STRUCK and held.lease not in struck and await hit(held.lease):
                    struck.add(held.lease)
            return len(struck) == STRUCK

        await eventually(so_many, "sandboxes to strike", COMPLETION_SECONDS)

    def harnesses(self, lease: str) -> list[int]:
        return programs_of_lease(sandbox_folder_of(self.cluster), lease, "python3")

    async def kill_harness(self, lease: str) -> bool:
        pids = await asyncio.to_thread(self.harnesses, lease)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    async def destroy_sandbox(self, lease: str) -> bool:
        runs = bool(await asyncio.to_thread(self.harnesses, lease))
        if runs:
            await self.cluster.sandboxes().destroy(lease)
        return runs

    async def kill_supervisor(self, lease: str) -> bool:
        runs = bool(await asyncio.to_thread(self.harnesses, lease))
        if runs:
            await asyncio.to_thread(kill_supervisors, sandbox_folder_of(self.cluster), lease)
        return runs

    @property
    def bill(self) -> Bill:
        return duplicate_calls([call for each in self.providers for call in each.calls], self.deaths)

    async def check(self, run: str, rollouts: int) -> None:
        """Every rollout did its task, with as many turns as undisturbed."""
        journal = self.cluster.open_journal()
        siblings = [each for _, entry in await scored_groups(journal, run) for each in entry.siblings]
        assert len(siblings) == rollouts
        for sibling in siblings:
            reward = await journal.read_required(reward_key(sibling.rollout), RewardEntry)
            assert (reward.score, dict(marks_in(reward.log))) == (1.0, dict.fromkeys(tasks.EXPECTED, 1))
            assert sibling.turns == tasks.TURNS + 1, sibling


async def test_all_end_while_everything_is_killed_once(private_cluster: Cluster) -> None:
    cluster, sizes = private_cluster, {"small": 64}
    if is_installed("mini-swe-agent"):
        sizes["mini"] = 16
    calls = sum(sizes.values()) * (tasks.TURNS + 1)
    crowd = Crowd(cluster)
    async with AsyncExitStack() as stack:
        first, second = [await cluster.start_worker() for _ in range(2)]
        for run, rollouts in sizes.items():
            script = SMALL if run == "small" else HarnessScript("mini-swe-agent")
            await crowd.start(stack, run, script, rollouts)
        await crowd.answered(calls // 10)
        await crowd.kill(first)
        await crowd.answered(calls // 4)
        await crowd.strike(crowd.kill_harness)
        await crowd.answered(calls * 2 // 5)
        await crowd.strike(crowd.destroy_sandbox)
        await crowd.answered(calls // 2)
        await crowd.strike(crowd.kill_supervisor)
        await crowd.kill(second)
        async with asyncio.timeout(COMPLETION_SECONDS):
            await asyncio.gather(*(handle.result() for handle in crowd.handles.values()))
    for run, rollouts in sizes.items():
        await crowd.check(run, rollouts)
    assert crowd.bill.repaid == 0, crowd.bill
    await cluster.reaper().look()
    await eventually(lambda: nothing_left(cluster), "sandboxes and processes that are gone")


async def nothing_left(cluster: Cluster) -> bool:
    held = await cluster.sandboxes().leases()
    return not held and not await asyncio.to_thread(processes_below, sandbox_folder_of(cluster))
