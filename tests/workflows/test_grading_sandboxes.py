"""Sandboxes for grading that are lost: the agent's stays, and the verification is repeated in a new one."""

import os
from functools import partial

import pytest

from clotho.failure_policy import ENVIRONMENT_ATTEMPTS
from clotho.identifiers.ids import replacement_id
from clotho.identifiers.keys import epoch_prefix, grading_key, reward_key
from clotho.rollouts.outcome import Outcome
from clotho.rollouts.verification import EpochEntry, RewardEntry
from clotho.run_settings import OnRewardError, RunSettings
from clotho.runs.groups import scored_groups
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually
from tests.workflows.losses import kill_lease, made_in
from tests.workflows.scripts import run, say

GRADED = "tests.environments.graded_apart:GradedApart"
AGENT = (run("echo -n 1 > /work/kept"), say("Done."))
WAITS = "touch /work/grading; while [ ! -e /work/go ]; do sleep 0.05; done"
SCRIPT = Script(conversations=(Conversation(variants=(AGENT,)),))


async def test_the_agents_sandbox_outlives_those_for_grading(cluster: Cluster) -> None:
    rollout = "grading-lost/g000000/r0"
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start("grading-lost", url, environment=GRADED, overrides={"grade": WAITS})
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


async def test_a_rollout_that_loses_each_sandbox_for_grading_is_replaced_without_a_reward(
    cluster: Cluster,
) -> None:
    """Four were lost before: the fifth, of which nothing tells what ended it, is the last."""
    rollout, journal = "grading-all-lost/g000000/r0", cluster.open_journal()
    for number in range(4):
        await journal.append(epoch_prefix(rollout), EpochEntry(reason=f"loss {number}", grading_lost=True))
    replacement = replacement_id(rollout, 1)
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start("grading-all-lost", url, environment=GRADED, overrides={"grade": WAITS})
        lost, next_ = grading_key(rollout, 0, 4), grading_key(replacement, 0, 0)
        await eventually(partial(made_in, cluster, lost, "grading"), "the fifth grading")
        kill_lease(cluster, lost)
        file = await eventually(partial(made_in, cluster, next_, "grading"), "that of the replacement")
        file.with_name("go").touch()
        await handle.result()
    assert await journal.read(reward_key(rollout), RewardEntry) is None
    [(_, entry)] = await scored_groups(journal, "grading-all-lost")
    assert [(one.rollout, one.score) for one in entry.siblings] == [(replacement, 1.0)]
    [repair] = entry.repairs
    assert repair.failure.kind == "GradingRepeatedlyLost" and "5 sandboxes" in repair.failure.reason


@pytest.mark.slow
async def test_outages_are_none_of_the_times_that_a_verifier_may_raise(cluster: Cluster) -> None:
    """It raises once, after as many losses as it may raise times: it has not failed for good."""
    rollout = "flaky-graded/g000000/r0"
    flaky, zero = "tests.environments.graded_apart:Flaky", RunSettings(on_reward_error=OnRewardError.ZERO)
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start(
            "flaky-graded", url, environment=flaky, overrides={"grade": WAITS}, settings=zero
        )
        for epoch in range(ENVIRONMENT_ATTEMPTS):
            lost = grading_key(rollout, 0, epoch)
            await eventually(partial(made_in, cluster, lost, "grading"), f"grading {epoch}")
            kill_lease(cluster, lost)
        await handle.result()
    entry = await cluster.open_journal().read_required(reward_key(rollout), RewardEntry)
    assert (entry.score, entry.error) == (1.0, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="disks of their own need root")
@pytest.mark.slow
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
