"""Many rollouts that are cancelled at once, wherever each of them is."""

import asyncio
import os

import pytest
from temporalio.client import WorkflowFailureError

from clotho.runs.rollouts import read_end
from clotho.temporal.search_attributes import RUN
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually
from tests.workflows.scripts import run

ROLLOUTS = int(os.environ.get("CANCELLED_ROLLOUTS", "200"))
SIBLINGS = 4
PATIENCE = 600.0


async def number(cluster: Cluster, which: str) -> int:
    return (await cluster.client.count_workflows(which)).count


@pytest.mark.slow
async def test_all_end_cancelled_and_nothing_is_left(private_cluster: Cluster) -> None:
    """Some wait for their first turn, some have a sandbox made, and some run a command in one."""
    cluster, groups = private_cluster, ROLLOUTS // SIBLINGS
    await cluster.start_worker("llm")
    await cluster.start_worker("workflows,tools")
    model = ScriptedModel(Script(conversations=(Conversation(variants=((run("sleep 3600"),),)),)))
    rollouts = f"{RUN}='many' AND WorkflowType='Rollout'"
    async with serving(model) as url:
        handle = await cluster.start(
            "many",
            url,
            environment="benchmarks.environments:Graded",
            groups=groups,
            group_size=SIBLINGS,
            max_open_groups=groups,
        )

        async def some_work() -> bool:
            leases = await cluster.sandboxes().leases()
            return len(leases) >= ROLLOUTS // 4

        await eventually(some_work, "a quarter of the sandboxes made", PATIENCE)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()

        async def all_closed() -> bool:
            return await number(cluster, f"{RUN}='many' AND ExecutionStatus='Running'") == 0

        await eventually(all_closed, "every workflow closed", PATIENCE)

    async def nothing_left() -> bool:
        return await cluster.sandboxes().leases() == []

    # Of a thousand, some are left to the reaper: a release waits a minute in its host's queue, and no longer.
    await eventually(nothing_left, "no sandbox left", PATIENCE)
    begun = await number(cluster, rollouts)
    assert begun >= ROLLOUTS // 4

    async def all_cancelled() -> bool:
        return await number(cluster, f"{rollouts} AND ExecutionStatus='Canceled'") == await number(
            cluster, rollouts
        )

    await eventually(all_cancelled, "every rollout listed as cancelled")
    names = [f"many/g{group:06}/r{each}" for group in range(groups) for each in range(SIBLINGS)]
    journal = cluster.open_journal()
    ends = await asyncio.gather(*(read_end(journal, name) for name in names))
    assert not any(ends)
