"""Verification: durable across attempts, and never a number where something went wrong."""

import json

import pytest
from temporalio.client import WorkflowFailureError

from clotho.entries import RewardEntry
from clotho.identifiers import reward_key
from clotho.journal import Journal
from clotho.testing.cluster import Cluster
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.support import eventually
from tests.workflows.scripts import run, say
from tests.workflows.test_runs import failure

VERIFIERS = "tests.environments.failing_verifiers"
SCRIPT = Script(conversations=(Conversation(variants=((run("true"), say("Done.")),)),))


async def reward(journal: Journal, run_name: str) -> RewardEntry | None:
    return await journal.read(reward_key(f"{run_name}/g000000/r0"), RewardEntry)


async def test_a_retried_verification_finds_its_finished_commands(private_cluster: Cluster) -> None:
    """The worker is killed in the second command: the first isn't run again, the second is attached to."""
    cluster = private_cluster
    environment = "tests.environments.slow_verifier:SlowVerifier"
    async with serving(ScriptedModel(SCRIPT)) as url:
        worker = await cluster.start_worker()
        handle = await cluster.start("retried", url, environment=environment, model="scripted")

        async def verifying() -> bool:
            files = cluster.folder.glob("sandboxes/*/sandboxes/*/disk/work/verified")
            return any(file.read_text() == "first\n" for file in files)

        await eventually(verifying, "the verifier's first command done")
        await worker.kill()
        await cluster.start_worker()
        await handle.result()
    found = await reward(cluster.open_journal(), "retried")
    assert found is not None and (found.score, found.log, found.epoch) == (1.0, "first second", 0)


@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        ("Raises", "the author's mistake"),
        ("NotANumber", "a reward must be finite"),
        ("NoReward", "return a number or a Reward"),
        ("Swallows", "/dev/null/impossible"),
    ],
)
async def test_what_goes_wrong_in_verification_is_no_reward(
    cluster: Cluster, verifier: str, said: str
) -> None:
    name = f"verifier-{verifier.lower()}"
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start(name, url, environment=f"{VERIFIERS}:{verifier}", model="scripted")
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
    assert said in failure(raised.value)
    assert await reward(cluster.open_journal(), name) is None


async def test_a_verifier_whose_commands_differ_starts_again_in_a_new_epoch(cluster: Cluster) -> None:
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start("undecided", url, environment=f"{VERIFIERS}:Undecided", model="scripted")
        await handle.result()
    journal = cluster.open_journal()
    found = await reward(journal, "undecided")
    assert found is not None and (found.score, found.epoch) == (1.0, 1)


async def test_an_author_sees_the_line_that_raised(cluster: Cluster) -> None:
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start("traceback", url, environment=f"{VERIFIERS}:Raises", model="scripted")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    history = await cluster.client.get_workflow_handle("traceback/g000000/r0").fetch_history()
    text = json.dumps(history.to_json_dict())
    assert "failing_verifiers.py" in text and "compute_reward" in text
