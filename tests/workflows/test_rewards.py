"""Verification: durable across attempts, and never a number where something went wrong."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError

from clotho.identifiers.keys import repairs_prefix, reward_key
from clotho.journal import Journal
from clotho.rollouts.verification import RewardEntry
from clotho.run_settings import OnRewardError, RunSettings
from clotho.runs.export import Format, export_run
from clotho.runs.groups import scored_groups
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import clotho
from tests.cluster import Cluster
from tests.support import eventually
from tests.workflows.losses import made
from tests.workflows.scripts import run, say
from tests.workflows.test_campaign import runs_of
from tests.workflows.test_runs import failure

VERIFIERS = "tests.environments.failing_verifiers"
SCRIPT = Script(conversations=(Conversation(variants=((run("true"), say("Done.")),)),))


async def reward(journal: Journal, run_name: str) -> RewardEntry | None:
    return await journal.read(reward_key(f"{run_name}/g000000/r0"), RewardEntry)


@pytest.mark.slow
async def test_a_retried_verification_finds_its_finished_commands(private_cluster: Cluster) -> None:
    """The worker is killed in the second command: the first isn't run again, the second is attached to."""
    cluster = private_cluster
    environment = "tests.environments.slow_verifier:SlowVerifier"
    async with serving(ScriptedModel(SCRIPT)) as url:
        worker = await cluster.start_worker()
        handle = await cluster.start("retried", url, environment=environment, model="scripted")

        verified = await eventually(
            lambda: made(cluster, "retried/g000000/r0", 0, "verified"), "the verifier's first command done"
        )
        await worker.kill()
        await cluster.start_worker()
        verified.with_name("go").touch()
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
        ("NoFiles", "the author's missing file"),
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


@pytest.mark.slow
async def test_an_author_sees_the_line_that_raised(cluster: Cluster) -> None:
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start("traceback", url, environment=f"{VERIFIERS}:Raises", model="scripted")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    history = await cluster.client.get_workflow_handle("traceback/g000000/r0").fetch_history()
    text = json.dumps(history.to_json_dict())
    assert "failing_verifiers.py" in text and "compute_reward" in text
    shown = await clotho("status", "traceback", "--store", cluster.store, "--temporal", cluster.address)
    assert shown.output.count("traceback/g000000/r0: the environment raised\n") == 1, shown.output
    assert "failing_verifiers.py" in shown.output and "in compute_reward" in shown.output
    assert "EnvironmentFailed: ValueError: the author's mistake" in shown.output


async def test_an_author_s_exception_is_not_repaired(cluster: Cluster) -> None:
    """A repair would meet it again: three attempts at the verification are all."""
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start("unrepaired", url, environment=f"{VERIFIERS}:Raises", model="scripted")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert len(await runs_of(cluster, "unrepaired/g000000/r0")) == 1
    assert await cluster.open_journal().keys(repairs_prefix("unrepaired")) == []


@pytest.mark.slow
async def test_a_run_may_score_failed_verifiers_zero_and_has_them_flagged(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A sandbox's failure isn't the verifier's: it is no reward in such a run either."""
    journal, output = cluster.open_journal(), tmp_path / "zero.jsonl"
    zero = RunSettings(on_reward_error=OnRewardError.ZERO)
    async with serving(ScriptedModel(SCRIPT)) as url:
        raising, swallowing = f"{VERIFIERS}:Raises", f"{VERIFIERS}:Swallows"
        await (await cluster.start("zero", url, environment=raising, settings=zero)).result()
        refused = await cluster.start("zero-lost", url, environment=swallowing, settings=zero)
        with pytest.raises(WorkflowFailureError):
            await refused.result()
    found = await reward(journal, "zero")
    assert found is not None and found.score == 0.0
    assert found.error is not None and "the author's mistake" in found.error
    [(_, entry)] = await scored_groups(journal, "zero")
    assert [sibling.reward_error for sibling in entry.siblings] == [True]
    await export_run(journal, "zero", Format.MESSAGES, output)
    assert json.loads(output.read_text())["reward_error"] == found.error
    assert await reward(journal, "zero-lost") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can install below /usr")
async def test_an_agent_never_sees_its_verifiers_source(
    private_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment that is installed where sandboxes see it can't be run."""
    cluster = private_cluster
    with tempfile.TemporaryDirectory(prefix="clotho-test-", dir="/usr/share") as installed:
        Path(installed, "seen_by_agents.py").write_text(Path("tests/environments/one_file.py").read_text())
        monkeypatch.syspath_prepend(installed)
        await cluster.start_worker(PYTHONPATH=installed)
        async with serving(ScriptedModel(SCRIPT)) as url:
            handle = await cluster.start("seen", url, environment="seen_by_agents:OneFile")
            with pytest.raises(WorkflowFailureError) as raised:
                await handle.result()
    assert "sandboxes would see" in failure(raised.value)
    assert "seen_by_agents.py: install it elsewhere" in failure(raised.value)
    assert await cluster.open_journal().keys("seen/~repairs/") == []
