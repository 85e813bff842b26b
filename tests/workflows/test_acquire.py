"""Sandboxes that are made while the first turn is sampled."""

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError

from clotho.rollouts.group import RepairBounds
from clotho.run_settings import Acquire, RunSettings
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import LOOK_UPS, eventually, start, step_of
from tests.workflows.scripts import run, say, scoring
from tests.workflows.test_runs import failure

EARLY = RunSettings(acquire=Acquire.AT_START)
NO_REWARD_IN_A_SANDBOX = "benchmarks.environments:Loop"
NOTES = ScriptedTurn(calls=(ScriptedCall(name="todo", arguments={}),))


def played(*turns: ScriptedTurn) -> ScriptedModel:
    return ScriptedModel(Script(conversations=(Conversation(variants=((*turns, say("Done.")),)),)))


async def steps(cluster: Cluster, rollout: str) -> list[str]:
    """The summaries of a rollout's activities, those that were scheduled at once joined."""
    history = await cluster.client.get_workflow_handle(rollout).fetch_history()
    found: list[list[str]] = []
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            found.append([])
        elif (step := step_of(event)) is not None and step not in LOOK_UPS:
            found[-1].append(step)
    return [" + ".join(each) for each in found if each]


async def held(cluster: Cluster, rollout: str) -> bool:
    return any(each.lease.startswith(rollout) for each in await cluster.sandboxes().leases())


@pytest.mark.slow
async def test_the_sandbox_is_made_beside_the_first_turn(cluster: Cluster) -> None:
    rollout = "early/g000000/r0"
    async with serving(ScriptedModel(Script(conversations=(scoring(0.75),)))) as url:
        await (await start(cluster, "early", url, settings=EARLY)).result()
    found = await steps(cluster, rollout)
    assert any(each.endswith("turn 0 + create sandbox") for each in found[:2])
    assert next(each for each in found if "turn 0" not in each).startswith("0.0 `terminal`")
    assert sum("create sandbox" in each for each in found) == 1
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (0.75, ())


async def test_one_that_is_never_used_is_released(cluster: Cluster) -> None:
    rollout = "unused/g000000/r0"
    async with serving(played(NOTES)) as url:
        handle = await cluster.start("unused", url, environment=NO_REWARD_IN_A_SANDBOX, settings=EARLY)
        await handle.result()
    found = await steps(cluster, rollout)
    assert any(each.endswith("turn 0 + create sandbox") for each in found[:2])
    assert "release sandbox" in " ".join(found)
    assert not await held(cluster, rollout)


async def test_none_is_made_where_no_tool_needs_one(cluster: Cluster) -> None:
    async with serving(played(NOTES)) as url:
        handle = await cluster.start(
            "without",
            url,
            environment=NO_REWARD_IN_A_SANDBOX,
            settings=EARLY,
            overrides={"enabled_toolsets": ["todo"]},
        )
        await handle.result()
    assert "sandbox" not in " ".join(await steps(cluster, "without/g000000/r0"))


@pytest.mark.parametrize("needed", [False, True])
async def test_one_that_cannot_be_made_fails_what_needs_it(cluster: Cluster, needed: bool) -> None:
    """These workers make no sandboxes through ssh."""
    name = f"unmade-{needed}".lower()
    settings = RunSettings(acquire=Acquire.AT_START, sandbox="ssh")
    async with serving(played(run("true") if needed else NOTES)) as url:
        handle = await cluster.start(
            name,
            url,
            environment=NO_REWARD_IN_A_SANDBOX,
            settings=settings,
            repairs=RepairBounds(per_group=0),
        )
        if needed:
            with pytest.raises(WorkflowFailureError) as raised:
                await handle.result()
            assert "the run asks for sandboxes of ssh" in failure(raised.value)
        else:
            await handle.result()
    end = await read_end(cluster.open_journal(), f"{name}/g000000/r0")
    assert (end is None) == needed


@pytest.mark.slow
async def test_one_that_is_being_made_is_released_after_a_cancel(private_cluster: Cluster) -> None:
    """The model never answers, and the sandbox is made when the rollout has been cancelled."""
    cluster, rollout = private_cluster, "cancelled/g000000/r0"
    folder = cluster.folder / "fail"
    folder.mkdir()
    await cluster.start_worker(CLOTHO_FAIL="sandbox.created:pause", CLOTHO_FAIL_FOLDER=str(folder))
    model = ScriptedModel(Script(conversations=(Conversation(variants=((say("Done."),),)),), latency=600))
    async with serving(model) as url:
        await start(cluster, "cancelled", url, settings=EARLY)
        point = folder / "sandbox.created"
        await eventually(lambda: asyncio.to_thread(point.exists), "the sandbox made")
        workflow = cluster.client.get_workflow_handle(rollout)
        await workflow.cancel()
        point.unlink()
        with pytest.raises(WorkflowFailureError):
            await workflow.result()
    assert "release sandbox" in " ".join(await steps(cluster, rollout))
    assert not await held(cluster, rollout)
