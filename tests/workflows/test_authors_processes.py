"""Verifiers in processes of their own, in runs: bounds, cancels, whose failure it is, and which code is used."""

import asyncio
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError

from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import repairs_prefix, reward_key
from clotho.rollouts.verification import RewardEntry
from clotho.run_settings import OnRewardError, RunSettings
from clotho.runs.campaigns import CampaignHandle
from clotho.runs.operations import Operations
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import clotho
from tests.cluster import Cluster
from tests.environments.calls import is_running
from tests.support import eventually
from tests.workflows.holding import Holding
from tests.workflows.scripts import run, say
from tests.workflows.test_runs import failure

HANGING = "tests.environments.hanging_verifier:Hanging"
SCRIPT = Script(conversations=(Conversation(variants=((run("true"), say("Done.")),)),))


async def started(
    cluster: Cluster, name: str, url: str, begun: Path, does: str, settings: RunSettings | None = None
) -> CampaignHandle:
    overrides = {"begun": str(begun)}
    return await cluster.start(
        name,
        url,
        environment=HANGING,
        items=({"does": does},),
        overrides=overrides,
        settings=settings or RunSettings(),
    )


def processes(begun: Path) -> list[int]:
    """The processes in which the verifier was called, in order."""
    return [int(line) for line in begun.read_text().split()] if begun.exists() else []


async def calls(begun: Path) -> list[int]:
    return processes(begun)


async def reward(cluster: Cluster, name: str) -> RewardEntry | None:
    return await cluster.open_journal().read(reward_key(f"{name}/g000000/r0"), RewardEntry)


async def ended(process: int) -> bool:
    return not is_running(process)


async def test_a_verifier_that_hangs_is_ended_at_its_bound_three_times(
    cluster: Cluster, tmp_path: Path
) -> None:
    begun, name = tmp_path / "begun", "hangs"
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await started(cluster, name, url, begun, "hangs", RunSettings(verification_seconds=0.5))
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
    assert "compute_reward took longer than 0.5 s" in failure(raised.value)
    found = processes(begun)
    assert len(found) == len(set(found)) == 3, "each attempt has a process of its own"
    assert await reward(cluster, name) is None
    await eventually(lambda: ended(found[-1]), "the last process ended")


@pytest.mark.parametrize(
    ("does", "said"), [("raises EIO", "Input/output error"), ("runs out of memory", "MemoryError")]
)
async def test_what_a_verifier_raises_is_its_author_s_whatever_its_number(
    cluster: Cluster, tmp_path: Path, does: str, said: str
) -> None:
    begun, name = tmp_path / "begun", does.replace(" ", "-").lower()
    zero = RunSettings(on_reward_error=OnRewardError.ZERO)
    async with serving(ScriptedModel(SCRIPT)) as url:
        await (await started(cluster, name, url, begun, does, zero)).result()
    found = await reward(cluster, name)
    assert found is not None and found.score == 0.0
    assert found.error is not None and said in found.error
    assert len(processes(begun)) == 3
    assert await cluster.open_journal().keys(repairs_prefix(name)) == []


async def test_a_cancel_ends_a_verifier_that_hangs_and_status_and_show_tell_how_long_it_works(
    cluster: Cluster, tmp_path: Path
) -> None:
    begun, name = tmp_path / "begun", "cancelled-verifying"
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await started(cluster, name, url, begun, "hangs")
        (process,) = await eventually(lambda: calls(begun), "the verifier called")

        where = ("--store", cluster.store, "--temporal", cluster.address)

        async def verifying() -> bool:
            return "verifying for" in (await clotho("status", name, *where)).output

        await eventually(verifying, "status tells of the verification")
        shown = await clotho("show", rollout_id(group_id(name, 0), 0), *where)
        assert "verifying for " in shown.output
        assert shown.status == 0, shown.error
        await Operations(cluster.open_journal(), cluster.client).cancel(Target.named(name))
        await eventually(lambda: ended(process), "the process ended")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert processes(begun) == [process]


VERSIONED = """
from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext


class VersionedConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("todo",)


class Versioned(Environment):
    config_class = VersionedConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return 1.0
"""


async def test_an_open_run_keeps_its_code_and_a_new_one_takes_the_edited(
    private_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, source = private_cluster, tmp_path / "versioned_task.py"
    tmp_path.chmod(0o711)
    source.write_text(VERSIONED)
    monkeypatch.syspath_prepend(str(tmp_path))
    await cluster.start_worker(PYTHONPATH=str(tmp_path))
    environment = "versioned_task:Versioned"
    answer = Script(conversations=(Conversation(variants=((say("Done."),),)),))
    model = Holding(answer, held=b"task")
    operate = Operations(cluster.open_journal(), cluster.client)
    async with serving(model) as url, serving(ScriptedModel(answer)) as other:
        kept, taken = [await cluster.start(name, url, environment=environment) for name in ("kept", "taken")]
        await model.held(2)
        source.write_text(VERSIONED.replace("return 1.0", "return 0.25"))
        await (await cluster.start("new", other, environment=environment)).result()
        assert await operate.changed_sources(Target.named("taken")) == [Path("versioned_task.py")]
        await operate.resume(Target.named("taken"))
        model.release.set()
        await asyncio.gather(kept.result(), taken.result())
    found = [await reward(cluster, name) for name in ("kept", "new", "taken")]
    assert [each and each.score for each in found] == [1.0, 0.25, 0.25]
    fingerprints = [each.code for each in found if each is not None]
    assert fingerprints[0] and fingerprints[0] != fingerprints[1] == fingerprints[2]
