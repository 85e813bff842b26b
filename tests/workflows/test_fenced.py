"""A rollout whose workflow has lost its history goes on in the last of its sandboxes."""

from pathlib import Path

import pytest

from clotho.identifiers.keys import lease_key
from clotho.rollouts.lease import LeaseEntry
from clotho.runs.rollouts import read_end
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.losses import kill_sandbox, made, output
from tests.workflows.scripts import run, say
from tests.workflows.test_operations import operations, seen_by_turns, stopped

LOSSES = 3


@pytest.mark.slow
async def test_fenced_leases_are_no_losses_of_the_step_that_meets_them(cluster: Cluster) -> None:
    """So many losses at one step would count as the command's doing."""
    name, rollout = "fenced-leases", "fenced-leases/g000000/r0"
    turns = [
        run(f"touch /work/at-{n}; while [ ! -e /work/past-{n} ]; do sleep 0.05; done; echo {n} >> /work/ran")
        for n in range(LOSSES + 1)
    ]
    last = (run("echo $(cat /work/ran); echo -n 1 > /work/score"), say("Done."))
    model = ScriptedModel(Script(conversations=(Conversation(variants=((*turns, *last),)),)))
    async with serving(model) as url:
        handle = await start(cluster, name, url)
        for number in range(LOSSES):  # at one step, they would be its command's doing
            await at(cluster, rollout, number, number)
            await kill_sandbox(cluster, rollout, number)
            (await at(cluster, rollout, number + 1, number)).with_name(f"past-{number}").touch()
        waiting = await at(cluster, rollout, LOSSES, LOSSES)
        target = Target.named(rollout)
        await operations(cluster).pause(target)
        await seen_by_turns()
        waiting.with_name(f"past-{LOSSES}").touch()
        await stopped(cluster, rollout, 1)
        await cluster.client.get_workflow_handle(rollout).terminate("by a test")
        await operations(cluster).resume(target)
        await handle.result()
    journal = cluster.open_journal()
    end = await read_end(journal, rollout)
    assert end is not None
    assert (end.summary.score, len(end.summary.losses)) == (1.0, LOSSES)
    assert await journal.read(lease_key(rollout, LOSSES + 1), LeaseEntry) is None
    ran = [str(number) for number in range(LOSSES + 1)]
    assert (await output(cluster, rollout, f"{LOSSES + 1:04}-00")).split() == ran


async def at(cluster: Cluster, rollout: str, lease: int, step: int) -> Path:
    """The file that step `step` makes in the sandbox of a lease, once it waits there."""
    return await eventually(lambda: made(cluster, rollout, lease, f"at-{step}"), f"step {step} in {lease}")
