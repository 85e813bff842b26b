"""A rollout whose workflow has lost its history goes on in the last of its sandboxes."""

import pytest

from clotho.identifiers.rollout_keys import call_key, lease_key
from clotho.rollouts.lease import LeaseEntry
from clotho.runs.rollouts import read_end
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.losses import journalled, kill_sandbox, output
from tests.workflows.scripts import run, say
from tests.workflows.test_operations import operations, stopped

LOSSES = 3


@pytest.mark.slow
async def test_fenced_leases_are_no_losses_of_the_step_that_meets_them(cluster: Cluster) -> None:
    """So many losses at one step would count as the command's doing."""
    name, rollout = "fenced-leases", "fenced-leases/g000000/r0"
    turns = [run(f"echo {number} >> /work/ran") for number in range(12)]
    last = (run("echo $(cat /work/ran); echo -n 1 > /work/score"), say("Done."))
    model = ScriptedModel(Script(conversations=(Conversation(variants=((*turns, *last),)),), latency=0.3))
    async with serving(model) as url:
        handle = await start(cluster, name, url, overrides={"max_agent_turns": 20})
        await journalled(cluster, call_key(rollout, "0000-00"))
        for number in range(LOSSES):
            await kill_sandbox(cluster, rollout, number)
            await journalled(cluster, lease_key(rollout, number + 1))
            await another_call(cluster, rollout)
        await operations(cluster).pause(Target.named(rollout))
        await stopped(cluster, rollout, 1)
        await cluster.client.get_workflow_handle(rollout).terminate("by a test")
        await handle.result()
    journal = cluster.open_journal()
    end = await read_end(journal, rollout)
    assert end is not None
    assert (end.summary.score, len(end.summary.losses)) == (1.0, LOSSES)
    assert await journal.read(lease_key(rollout, LOSSES + 1), LeaseEntry) is None
    assert (await output(cluster, rollout, "0012-00")).split() == [str(number) for number in range(12)]


async def another_call(cluster: Cluster, rollout: str) -> None:
    """Wait until one more is made than now: losses at one step would be its command's doing."""
    folder = (cluster.store / call_key(rollout, "0000-00")).parent
    calls = len(list(folder.iterdir()))

    async def made() -> bool:
        return len(list(folder.iterdir())) > calls

    await eventually(made, "another call")
