"""A right answer scores 1 wherever its verification goes on, though its verifier has taken the answer away."""

from pathlib import Path

import pytest

from clotho.identifiers.keys import lease_key, reward_key
from clotho.rollouts.verification import RewardEntry
from clotho.run_settings import CheckpointPolicy, RunSettings
from clotho.runs.disturbances import Disturbance, disturbances_of
from clotho.runs.groups import scored_groups
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually
from tests.tasks.making import IMAGE, make_task
from tests.workflows.losses import made
from tests.workflows.scripts import run, say

VERIFIERS = "tests.environments.tidying"
SCRIPT = Script(conversations=(Conversation(variants=((run("echo right > /work/answer"), say("Done.")),)),))


async def verified(cluster: Cluster, rollout: str) -> tuple[RewardEntry, tuple[Disturbance, ...]]:
    journal = cluster.open_journal()
    reward = await journal.read_required(reward_key(rollout), RewardEntry)
    end = await read_end(journal, rollout)
    assert end is not None
    return reward, disturbances_of(end.summary, ())


@pytest.mark.slow
async def test_goes_on_in_the_process_that_began_it_though_others_serve_the_host(
    private_cluster: Cluster,
) -> None:
    cluster, rollout = private_cluster, "handed/g000000/r0"
    async with serving(ScriptedModel(SCRIPT)) as url:
        await cluster.start_worker()
        for _ in range(2):
            await cluster.start_worker("workflows,tools")
        handle = await cluster.start("handed", url, environment=f"{VERIFIERS}:Removes")
        removed = await eventually(lambda: made(cluster, rollout, 0, "removed"), "the answer removed")

        async def goes_on() -> bool:
            described = await cluster.client.get_workflow_handle(rollout).describe()
            return any(
                each.activity_type.name == "verify" and each.HasField("last_started_time")
                for each in described.raw_description.pending_activities
            )

        await eventually(goes_on, "verification as a regular activity")
        removed.with_name("go").touch()
        await handle.result()
    reward, disturbances = await verified(cluster, rollout)
    assert (reward.score, reward.epoch, reward.claim, disturbances) == (1.0, 0, 0, ())


@pytest.mark.slow
async def test_is_answered_as_before_where_its_process_is_killed(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, "killed/g000000/r0"
    async with serving(ScriptedModel(SCRIPT)) as url:
        worker = await cluster.start_worker()
        handle = await cluster.start("killed", url, environment=f"{VERIFIERS}:Removes")
        removed = await eventually(lambda: made(cluster, rollout, 0, "removed"), "the answer removed")
        await worker.kill()
        await cluster.start_worker()
        removed.with_name("go").touch()
        await handle.result()
    reward, disturbances = await verified(cluster, rollout)
    assert (reward.score, reward.epoch, reward.claim) == (1.0, 0, 1)
    assert disturbances == (Disturbance.VERIFIED_AGAIN,)


@pytest.mark.slow
async def test_begins_anew_from_the_agents_last_state_where_it_takes_another_way(
    private_cluster: Cluster,
) -> None:
    cluster, rollout = private_cluster, "anew/g000000/r0"
    async with serving(ScriptedModel(SCRIPT)) as url:
        worker = await cluster.start_worker()
        handle = await cluster.start(
            "anew",
            url,
            environment=f"{VERIFIERS}:NamesAtRandom",
            settings=RunSettings(checkpoints=CheckpointPolicy.OFF),
        )
        await eventually(lambda: made(cluster, rollout, 0, "removed"), "the answer removed")
        await worker.kill()
        await cluster.start_worker()
        await handle.result()
    reward, disturbances = await verified(cluster, rollout)
    assert (reward.score, reward.epoch) == (1.0, 1)
    assert disturbances == (Disturbance.VERIFIED_AGAIN,)
    assert not [held for held in await cluster.sandboxes().leases() if "/verification/" in held.lease]


@pytest.mark.slow
async def test_has_no_reward_where_the_agents_last_state_is_gone(private_cluster: Cluster) -> None:
    """Processes that were kept for the verifier can't be had again: the rollout is replaced."""
    cluster, rollout = private_cluster, "kept/g000000/r0"
    async with serving(ScriptedModel(SCRIPT)) as url:
        worker = await cluster.start_worker()
        handle = await cluster.start("kept", url, environment=f"{VERIFIERS}:KeepsServices")
        await eventually(lambda: made(cluster, rollout, 0, "removed"), "the answer removed")
        await worker.kill()
        await cluster.start_worker()
        await handle.result()
    journal = cluster.open_journal()
    assert await journal.read(reward_key(rollout), RewardEntry) is None
    [(_, entry)] = await scored_groups(journal, "kept")
    assert [sibling.score for sibling in entry.siblings] == [1.0]
    [repair] = entry.repairs
    assert repair.failure.kind == "VerificationUnrepeatable"


@pytest.mark.slow
async def test_a_task_that_keeps_services_has_no_second_epoch(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_task(tmp_path, f"{IMAGE}[metadata.clotho]\nkeep_services = true\n")
    (folder / "tests" / "test.sh").write_text(
        "#!/bin/sh\ntouch /work/removed\nwhile ! [ -e /work/go ]; do sleep 0.05; done\n"
        "grep -c right /work/answer > /logs/verifier/reward.txt\n"
    )
    rollout = "services-lost/g000000/r0"
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start(
            "services-lost",
            url,
            environment="task_folders",
            overrides={"path": str(folder), "host_programs": True},
        )
        await eventually(lambda: made(cluster, rollout, 0, "removed"), "the tests begun")
        await cluster.sandboxes().destroy(lease_key(rollout, 0))
        begun = await eventually(lambda: made(cluster, f"{rollout}.1", 0, "removed"), "its replacement's")
        begun.with_name("go").touch()
        await handle.result()
    journal = cluster.open_journal()
    assert await journal.read(reward_key(rollout), RewardEntry) is None
    [(_, entry)] = await scored_groups(journal, "services-lost")
    assert [sibling.score for sibling in entry.siblings] == [1.0]
    assert [repair.failure.kind for repair in entry.repairs] == ["VerificationUnrepeatable"]
