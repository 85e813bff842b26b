"""Sandboxes for grading that are lost: the agent's stays, and the verification is repeated in a new one."""

import os
from functools import partial

import pytest

from clotho.identifiers.rollout_keys import grading_key, reward_key
from clotho.rollouts.outcome import Outcome
from clotho.rollouts.verification import RewardEntry
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually
from tests.workflows.losses import kill_lease, made_in
from tests.workflows.scripts import run, say

GRADED = "tests.environments.graded_apart:GradedApart"
AGENT = (run("echo -n 1 > /work/kept"), say("Done."))
SCRIPT = Script(conversations=(Conversation(variants=(AGENT,)),))


async def test_the_agents_sandbox_outlives_those_for_grading(cluster: Cluster) -> None:
    rollout = "grading-lost/g000000/r0"
    grade = "touch /work/grading; while [ ! -e /work/go ]; do sleep 0.05; done"
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start("grading-lost", url, environment=GRADED, overrides={"grade": grade})
        lost, next_ = (grading_key(rollout, 0, epoch) for epoch in range(2))
        await eventually(partial(made_in, cluster, lost, "grading"), "the grading")
        kill_lease(cluster, lost)
        file = await eventually(partial(made_in, cluster, next_, "grading"), "the grading again")
        file.with_name("go").touch()
        await handle.result()
    journal = cluster.open_journal()
    entry = await journal.read_required(reward_key(rollout), RewardEntry)
    assert (entry.score, entry.epoch) == (1.0, 1)
    assert entry.lease is not None and entry.lease.number == 0
    end = await read_end(journal, rollout)
    assert end is not None and end.summary.losses == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="disks of their own need root")
async def test_files_that_use_up_each_sandbox_for_grading_are_the_agents_doing(cluster: Cluster) -> None:
    rollout = "grading-used-up/g000000/r0"
    async with serving(ScriptedModel(SCRIPT)) as url:
        config = {"grade": "head -c 1G /dev/zero"}
        handle = await cluster.start("grading-used-up", url, environment=GRADED, overrides=config)
        await handle.result()
    journal = cluster.open_journal()
    entry = await journal.read_required(reward_key(rollout), RewardEntry)
    assert entry.score == 0.0 and entry.refused is not None and "ran out of disk" in entry.refused
    end = await read_end(journal, rollout)
    assert end is not None
    assert (end.summary.ending.outcome, end.summary.losses) == (Outcome.COMPLETED, ())
