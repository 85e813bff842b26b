"""Whole rollouts whose agent spoils its verification: scored, and never an outage or a missing reward."""

import pytest

from clotho.identifiers.keys import epoch_prefix, reward_key
from clotho.models.endpoint import Endpoint
from clotho.rollouts.verification import RewardEntry
from clotho.runs.campaigns import start_campaign
from clotho.runs.request import RunRequest, run_manifest
from clotho.sandbox.backend import SandboxSpec
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import FAST, Cluster
from tests.workflows.scripts import run, say

ENVIRONMENT = "tests.environments.failing_verifiers:WritesItsTest"
SPOILS = {
    "a-folder": ("mkdir -p /work/test.py/x", 0.0),
    "a-link-out": ("ln -s /etc/passwd /work/test.py", 0.0),
    "closed-folders": ("chmod 000 /tmp ~ /work", 1.0),
    "no-home": ("rm -rf ~/.* ~/*", 1.0),
}


@pytest.mark.attack(
    "verification", "a workspace that its verifier can't work in, so that the rollout isn't counted"
)
@pytest.mark.parametrize("spoil", SPOILS)
async def test_a_spoilt_workspace_is_scored(cluster: Cluster, spoil: str) -> None:
    command, score = SPOILS[spoil]
    name = f"spoilt-{spoil}"
    script = Script(conversations=(Conversation(variants=((run(command), say("Done.")),)),))
    async with serving(ScriptedModel(script)) as url:
        handle = await cluster.start(name, url, environment=ENVIRONMENT, model="scripted")
        await handle.result()
    rollout = f"{name}/g000000/r0"
    journal = cluster.open_journal()
    found = await journal.read_required(reward_key(rollout), RewardEntry)
    assert (found.score, found.epoch, found.error) == (score, 0, None)
    assert (found.refused is None) is (score == 1.0), found.refused
    assert await journal.keys(epoch_prefix(rollout)) == []


@pytest.mark.attack(
    "verification", "a program that uses up the verifier's sandbox, so that the rollout isn't counted"
)
@pytest.mark.slow
async def test_a_verification_that_loses_its_sandbox_each_time_is_scored(cluster: Cluster) -> None:
    name = "spoilt-by-output"
    rollout = f"{name}/g000000/r0"
    environment = "tests.environments.failing_verifiers:RunsTheAgentsScript"
    flood = run("echo 'head -c 1G /dev/zero' > /work/run.sh")
    script = Script(conversations=(Conversation(variants=((flood, say("Done.")),)),))
    manifest = run_manifest(environment, name, "scripted", group_size=1)
    async with serving(ScriptedModel(script)) as url:
        order = RunRequest(
            manifest=manifest.model_copy(update={"sandbox": SandboxSpec(disk_mb=40)}),
            endpoint=Endpoint(base_url=url),
            groups=1,
            max_open_groups=1,
            task_queues=FAST,
        )
        await (await start_campaign(cluster.client, cluster.open_journal(), order)).result()
    found = await cluster.open_journal().read_required(reward_key(rollout), RewardEntry)
    assert (found.score, found.error) == (0.0, None)
    assert found.refused == "verification ran out of disk and lost its sandbox each time"
