"""A verifier that ends its context keeps its score."""

import pytest
from temporalio.client import WorkflowFailureError

from clotho.identifiers.keys import reward_key
from clotho.rollouts.verification import RewardEntry
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.workflows.scripts import run, say
from tests.workflows.test_runs import failure

VERIFIERS = "tests.environments.cleans_up"
SCRIPT = Script(conversations=(Conversation(variants=((run("true"), say("Done.")),)),))


@pytest.mark.parametrize("verifier", ["CleansUp", "CleansUpAsync"])
async def test_a_verifier_that_cleans_up_keeps_its_score(cluster: Cluster, verifier: str) -> None:
    name = f"cleans-{verifier.lower()}"
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start(name, url, environment=f"{VERIFIERS}:{verifier}", model="scripted")
        await handle.result()
    found = await cluster.open_journal().read_required(reward_key(f"{name}/g000000/r0"), RewardEntry)
    assert (found.score, found.epoch, found.lease and found.lease.number) == (0.5, 0, 0)


async def test_a_context_that_was_ended_says_so_to_the_author(cluster: Cluster) -> None:
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start(
            "cleans-early", url, environment=f"{VERIFIERS}:UsesItAfterwards", model="scripted"
        )
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
    assert "ended by cleanup()" in failure(raised.value)
    journal = cluster.open_journal()
    assert await journal.read(reward_key("cleans-early/g000000/r0"), RewardEntry) is None


async def test_a_look_after_the_end_leaves_the_score_alone(cluster: Cluster) -> None:
    """Code that doesn't mind its context's end keeps its score: the error is no outage."""
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start(
            "cleans-twice", url, environment=f"{VERIFIERS}:LooksAgain", model="scripted"
        )
        await handle.result()
    found = await cluster.open_journal().read_required(reward_key("cleans-twice/g000000/r0"), RewardEntry)
    assert (found.score, found.epoch) == (0.5, 0)
