"""Whole rollouts whose verifier sees what the agent left, as the agent saw it."""

import json
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue

from clotho.identifiers.keys import lease_key, reward_key
from clotho.rollouts.verification import RewardEntry
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually
from tests.tasks.making import IMAGE, make_task
from tests.workflows.losses import made
from tests.workflows.scripts import run, say

ENVIRONMENT = "tests.environments.names_files:NamesFiles"
GREET = run("echo hello > ~/greeting.txt; cd ~")


SCRIPT = Script(conversations=(Conversation(variants=((GREET, say("Done.")),)),))


async def test_a_verifier_finds_a_file_under_every_name(cluster: Cluster) -> None:
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start("every-name", url, environment=ENVIRONMENT, model="scripted")
        await handle.result()
    found = await cluster.open_journal().read_required(reward_key("every-name/g000000/r0"), RewardEntry)
    assert found.score == 1.0, found.log
    assert not found.in_agents_instance


async def test_it_starts_in_the_same_directory_after_a_loss(cluster: Cluster) -> None:
    """The checkpoint before verification holds the directory that the agent's shell was in."""
    name = "view-after-loss"
    rollout = f"{name}/g000000/r0"
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start(
            name, url, environment=ENVIRONMENT, model="scripted", overrides={"waits": True}
        )
        await eventually(partial(made, cluster, rollout, 0, "verifying"), "the verifier's first command")
        await cluster.sandboxes().destroy(lease_key(rollout, 0))
        again = await eventually(partial(made, cluster, rollout, 1, "verifying"), "it in the next sandbox")
        again.with_name("go").touch()
        await handle.result()
    found = await cluster.open_journal().read_required(reward_key(rollout), RewardEntry)
    assert (found.score, found.lease and found.lease.number) == (1.0, 1), found.log


async def test_services_that_an_environment_keeps_are_alive_in_its_verification(cluster: Cluster) -> None:
    server = ScriptedTurn(
        calls=(ScriptedCall(name="terminal", arguments={"command": "sleep 600", "background": True}),)
    )
    script = Script(conversations=(Conversation(variants=((GREET, server, say("Done.")),)),))
    alive = {}
    for kept in (True, False):
        name = f"services-{kept}".lower()
        async with serving(ScriptedModel(script)) as url:
            handle = await cluster.start(
                name, url, environment=ENVIRONMENT, model="scripted", overrides={"keep_services": kept}
            )
            await handle.result()
        found = await cluster.open_journal().read_required(reward_key(f"{name}/g000000/r0"), RewardEntry)
        assert found.score == 1.0, found.log
        assert found.in_agents_instance is kept
        alive[kept] = json.loads(found.log)["alive"].strip()
    assert alive == {True: "1", False: "0"}


@pytest.mark.parametrize("kept", [True, False])
async def test_a_task_decides_for_its_run_whether_services_are_kept(
    cluster: Cluster, tmp_path: Path, kept: bool
) -> None:
    folder = make_task(tmp_path, f"{IMAGE}[metadata.clotho]\nkeep_services = {str(kept).lower()}\n")
    (folder / "tests" / "test.sh").write_text("#!/bin/sh\npgrep -c sleep > /logs/verifier/reward.txt\n")
    server = ScriptedTurn(
        calls=(ScriptedCall(name="terminal", arguments={"command": "sleep 600", "background": True}),)
    )
    script = Script(conversations=(Conversation(variants=((server, say("Done.")),)),))
    name = f"task-services-{kept}".lower()
    async with serving(ScriptedModel(script)) as url:
        overrides: dict[str, JsonValue] = {
            "path": str(folder),
            "host_programs": True,
            "keep_services": not kept,
        }
        handle = await cluster.start(name, url, environment="task_folders", overrides=overrides)
        await handle.result()
    found = await cluster.open_journal().read_required(reward_key(f"{name}/g000000/r0"), RewardEntry)
    assert (found.score, found.in_agents_instance) == (float(kept), kept)
