"""Sandboxes that are lost before their healthcheck has passed, and healthchecks of restored ones."""

import os

import pytest

from clotho.identifiers.keys import lease_key
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.outcome import Outcome
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually
from tests.workflows.losses import WAITS, kill_lease, kill_sandbox, lose_while_waiting, made, output
from tests.workflows.scripts import run, say

PROBED = "tests.environments.probed:Probed"
LOSSES = 3
"""As many of one step are the policy's doing, where a command of its own is that step."""


@pytest.mark.slow
async def test_sandboxes_lost_during_their_healthcheck_are_nobodys_score(cluster: Cluster) -> None:
    rollout = "lost-probing/g000000/r0"
    turns = (run("echo -n 1 > /work/score"), say("Done."))
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        handle = await cluster.start("lost-probing", url, environment=PROBED)
        for number in range(LOSSES + 1):
            file = await eventually(lambda: made(cluster, rollout, 0, "probing"), f"healthcheck {number}")
            if number == LOSSES:
                file.with_name("go").touch()
            else:
                file.unlink()
                kill_lease(cluster, lease_key(rollout, 0))
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and end.summary.ending.outcome is Outcome.COMPLETED
    assert (end.summary.score, end.summary.losses) == (1.0, ())


async def test_a_restored_sandbox_is_probed_before_its_next_command(cluster: Cluster) -> None:
    rollout = "probed/g000000/r0"
    turns = (run("cd /work && rm go probes probing"), run(WAITS), run("cat /work/probes"), say("Done."))
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        handle = await cluster.start("probed", url, environment=PROBED)
        first = await eventually(lambda: made(cluster, rollout, 0, "probing"), "the healthcheck")
        first.with_name("go").touch()
        await eventually(lambda: made(cluster, rollout, 0, "waiting"), "the second command")
        await kill_sandbox(cluster, rollout)
        again = await eventually(lambda: made(cluster, rollout, 1, "probing"), "the healthcheck again")
        assert not again.with_name("waiting").exists()
        again.with_name("go").touch()
        await handle.result()
    assert await output(cluster, rollout, "0002-00") == "probe"
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, (Fidelity.EXACT,))


async def test_a_state_that_fails_the_check_is_restored_as_the_agent_left_it(cluster: Cluster) -> None:
    """Else an agent that breaks its healthcheck would be left out, and its group with it."""
    rollout = "broken/g000000/r0"
    turns = (run("touch /work/broken"), run(WAITS), run("ls /work"), say("Done."))
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        handle = await cluster.start("broken", url, environment="tests.environments.probed:Breakable")
        await lose_while_waiting(cluster, rollout)
        await handle.result()
    assert "broken" in await output(cluster, rollout, "0002-00")
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, (Fidelity.EXACT,))


@pytest.mark.skipif(os.geteuid() != 0, reason="disks of their own need root")
async def test_a_state_that_ends_each_restored_sandbox_is_the_agents_doing(cluster: Cluster) -> None:
    """Its check fills the disk."""
    rollout = "filling/g000000/r0"
    turns = (run("touch /work/filling"), run(WAITS), say("Done."))
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        handle = await cluster.start("filling", url, environment="tests.environments.probed:Breakable")
        await eventually(lambda: made(cluster, rollout, 0, "waiting"), "the command waiting")
        await kill_sandbox(cluster, rollout)
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and end.summary.ending.outcome is Outcome.POLICY_KILLED
    assert (end.summary.score, end.summary.ending.limit) == (0.0, "disk")
