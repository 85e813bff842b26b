"""Operating a live run: pause, resume, cancel and retry of runs, groups and rollouts."""

import asyncio
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    PauseActivityRequest,
    ResetActivityRequest,
    UnpauseActivityRequest,
)
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from activities.ttl_cache import FRESH_SECONDS
from clotho.errors import InvalidInput
from clotho.plugins.viewer.rollout import read_rollout
from clotho.plugins.viewer.timeline import timeline
from clotho.rollouts.campaign import CampaignProgress
from clotho.rollouts.outcome import Outcome
from clotho.runs.operations import Boundaries, Operations
from clotho.runs.pauses import pauses_of, read_pauses, reason_for
from clotho.runs.rollouts import read_end
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Fault, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import clotho_many
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually, reset, start
from tests.workflows.holding import FIRST_TURNS, LATER_TURNS, Holding, after_turns
from tests.workflows.scripts import run, say

TURNS = (run("true"),) * 5
SLOW = Script(conversations=(Conversation(variants=((*TURNS, say("Done.")),)),), latency=0.3)
"""After the second turn, the others take longer than turns may take to see a pause."""

WITHIN_A_TASK = Script(
    conversations=(Conversation(variants=((*[run("true")] * 7, say("Done.")),)),), latency=0.8
)
"""Quick enough for turns to be sampled in a workflow's task, and together longer than that may be silent."""


def operations(cluster: Cluster) -> Operations:
    return Operations(cluster.open_journal(), cluster.client)


async def asked(model: ScriptedModel, times: int) -> None:
    async def so_often() -> bool:
        return model.calls.requests.total() >= times

    await eventually(so_often, f"{times} requests to the model")


async def seen_by_turns() -> None:
    """Wait until no turn goes by an older look for pauses."""
    clock = asyncio.get_running_loop().time
    began = clock()

    async def looks_are_stale() -> bool:
        return clock() - began > FRESH_SECONDS

    await eventually(looks_are_stale, "older looks to be stale")


async def stopped(cluster: Cluster, name: str, rollouts: int) -> None:
    async def all_have() -> bool:
        return await operations(cluster).boundaries(Target.named(name)) == Boundaries(rollouts, rollouts)

    await eventually(all_have, f"{rollouts} rollouts of {name} at a boundary")


@pytest.mark.slow
async def test_a_paused_run_stops_at_turn_boundaries_and_goes_on(cluster: Cluster) -> None:
    model, target = Holding(SLOW, held=LATER_TURNS), Target.named("paused")
    async with serving(model) as url:
        handle = await start(cluster, "paused", url, groups=2, group_size=2)
        await model.held(4)
        await operations(cluster).pause(target)
        await operations(cluster).pause(target)
        model.release.set()
        await stopped(cluster, "paused", 4)
        answered = model.calls.completed.total()
        progress = await handle.query("progress", result_type=CampaignProgress)
        assert progress.paused == "by hand"
        assert model.calls.requests.total() == answered
        await operations(cluster).resume(target)
        done = await handle.result()
    assert (done.scored, done.turns, done.paused) == (2, 24, None)
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.slow
async def test_a_paused_run_outlives_its_workers(private_cluster: Cluster) -> None:
    """One is killed and one told to stop while rollouts wait in them."""
    cluster, model, target = private_cluster, Holding(SLOW, held=LATER_TURNS), Target.named("restarted")
    async with serving(model) as url:
        worker = await cluster.start_worker()
        handle = await start(cluster, "restarted", url, group_size=2)
        await model.held(2)
        await operations(cluster).pause(target)
        model.release.set()
        await stopped(cluster, "restarted", 2)
        await worker.kill()
        worker = await cluster.start_worker()
        await stopped(cluster, "restarted", 2)
        await worker.stop(PATIENCE_SECONDS)
        await cluster.start_worker()
        await operations(cluster).resume(target)
        await handle.result()
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.slow
async def test_groups_and_rollouts_are_paused_by_themselves(cluster: Cluster) -> None:
    model = Holding(SLOW, held=LATER_TURNS)
    group, rollout = Target.named("apart-paused/g000000"), Target.named("apart-paused/g000001/r1")
    async with serving(model) as url:
        handle = await start(cluster, "apart-paused", url, groups=2, group_size=2)
        await model.held(4)
        operate = operations(cluster)
        for target in (group, rollout, group, rollout):
            await operate.pause(target)
        model.release.set()
        await stopped(cluster, str(group), 2)
        await stopped(cluster, str(rollout), 1)
        other = await cluster.client.get_workflow_handle("apart-paused/g000001/r0").result()
        assert other["score"] == 0.0
        with pytest.raises(InvalidInput, match="g000001/r0 has ended: nothing of it is left to pause"):
            await operate.pause(Target.named("apart-paused/g000001/r0"))
        with pytest.raises(
            InvalidInput, match="g000000/r1 is paused with apart-paused/g000000 \\(by hand\\)"
        ):
            await operate.resume(Target.named(f"{group}/r1"))
        await operate.resume(group)
        await operate.resume(rollout)
        await operate.resume(rollout)
        await handle.result()
        for ended in (Target.named("apart-paused"), group, rollout):
            with pytest.raises(InvalidInput, match=f"{ended} has ended"):
                await operate.pause(ended)
    assert set(model.calls.requests.values()) == {1}
    pauses = await read_pauses(cluster.open_journal(), "apart-paused")
    assert [(pause.name, pause.reason) for pause in pauses] == [
        (str(group), "by hand"),
        (str(rollout), "by hand"),
    ]
    for name in (f"{group}/r0", f"{group}/r1", str(rollout)):
        view = await read_rollout(cluster.open_journal(), name)
        line = timeline(view.turns, view.reward, own := pauses_of(pauses, name))
        [pause] = own
        assert pause.until is not None and line is not None
        assert 0 < line.totals["pause"] <= pause.until - pause.since


@pytest.mark.slow
async def test_what_begins_while_it_is_paused_begins_paused(cluster: Cluster, tmp_path: Path) -> None:
    """A repaired rollout, and siblings that Temporal doesn't have yet."""
    where = ("--store", str(cluster.store))
    model = Holding(SLOW, held=LATER_TURNS)
    rollout, later = Target.named("begun-paused/g000000/r0"), Target.named("begun-paused/g000001")
    async with serving(model) as url:
        handle = await start(cluster, "begun-paused", url, groups=2, group_size=2, max_open_groups=1)
        await model.held(2)
        operate = operations(cluster)
        await operate.pause(rollout)
        await operate.pause(later)
        model.release.set()
        await stopped(cluster, str(rollout), 1)
        workflow = cluster.client.get_workflow_handle(str(rollout))
        first = (await workflow.describe()).run_id
        await workflow.terminate("to be repaired")

        async def repaired() -> bool:
            return (await workflow.describe()).run_id != first

        await eventually(repaired, "the rollout to be repaired")
        await stopped(cluster, str(rollout), 1)
        await cluster.client.get_workflow_handle(f"{rollout.group}/r1").result()
        assert await read_end(cluster.open_journal(), str(rollout)) is None
        orders = {
            "run": ("status", "begun-paused", *where, "--temporal", cluster.address),
            "group": ("show", str(rollout.group), *where),
            "rollout": ("show", str(rollout), *where, "--temporal", cluster.address),
        }
        said = {
            name: " ".join(each.output.split())
            for name, each in (await clotho_many(orders, tmp_path)).items()
        }
        for name in (rollout, later):
            assert f"{name} is paused: by hand" in said["run"]
        assert "paused" in said["group"] and "paused: by hand" in said["rollout"], said
        await operate.resume(rollout)
        await stopped(cluster, str(later), 2)
        assert not any(str(later) in key for key in model.calls.requests), "no turn of what begins paused"
        await operate.resume(Target.named("begun-paused"))
        done = await handle.result()
    assert (done.scored, done.failed) == (2, 0)
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.slow
async def test_a_cancel_of_a_paused_rollout_works_and_its_retry_begins_paused(cluster: Cluster) -> None:
    model, group = Holding(SLOW, held=LATER_TURNS), Target.named("ended-paused/g000000")
    async with serving(model) as url:
        await start(cluster, "ended-paused", url)
        await model.held(1)
        operate = operations(cluster)
        await operate.pause(group)
        model.release.set()
        await stopped(cluster, str(group), 1)
        await operate.cancel(group)
        workflow = cluster.client.get_workflow_handle(str(group))
        with pytest.raises(WorkflowFailureError):
            await workflow.result()
        assert await operate.retry(group)
        await stopped(cluster, str(group), 1)
        assert await operate.pause_reason(group) == "by hand"
        await operate.resume(group)
        assert (await workflow.result())["group"] == str(group)
    assert set(model.calls.requests.values()) == {1}


async def test_a_retried_rollout_keeps_the_time_limit_of_its_item(cluster: Cluster) -> None:
    script = Script(conversations=(Conversation(variants=((run("true"), say("Done.")),)),))
    model, group = Holding(script, held=FIRST_TURNS), Target.named("hurried/g000000")
    rollout, operate = Target.named(f"{group}/r0"), operations(cluster)
    environment = "tests.environments.solved_files:HurriedFiles"
    async with serving(model) as url:
        await cluster.start("hurried", url, environment=environment)
        await model.held(1)
        await operate.cancel(group)
        with pytest.raises(WorkflowFailureError):
            await cluster.client.get_workflow_handle(str(group)).result()
        model.release.set()
        assert await operate.retry(rollout)
        await cluster.client.get_workflow_handle(str(rollout)).result()
    end = await read_end(cluster.open_journal(), str(rollout))
    assert end is not None and end.summary.ending.limit == "max_active_seconds"
    assert end.summary.turns == 1


@pytest.mark.slow
async def test_a_cancelled_paused_run_is_retried_as_it_was_ordered(cluster: Cluster, tmp_path: Path) -> None:
    """The real command needs none of the options that the run was started with."""
    model = Holding(SLOW, held=LATER_TURNS)
    where = ("--store", str(cluster.store), "--temporal", cluster.address)
    async with serving(model) as url:
        handle = await start(cluster, "by-command", url, groups=2, group_size=1)
        await model.held(2)
        orders = {
            "paused": ("pause", "by-command", *where),
            "shown": ("status", "by-command", *where),
            "ended": ("cancel", "by-command", *where),
        }
        ordered = asyncio.create_task(clotho_many(orders, tmp_path))
        journal = cluster.open_journal()
        await eventually(lambda: reason_for(journal, "by-command"), "the run to be paused")
        model.release.set()
        answers = await ordered
        assert "2 of 2 running rollouts have stopped" in answers["paused"].output, answers
        assert "paused: by hand" in answers["shown"].output
        assert answers["ended"].status == 0
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED
        orders = {
            "again": ("cancel", "by-command", *where),
            "retried": ("retry", "by-command", *where),
            "resumed": ("resume", "by-command", *where),
        }
        answers = await clotho_many(orders, tmp_path)
        assert answers["again"].complaint == "clotho: by-command is not running"
        assert "by-command was started again" in answers["retried"].output, answers
        assert "by-command goes on" in answers["resumed"].output, answers
        done = await cluster.client.get_workflow_handle(
            "by-command/~campaign", result_type=CampaignProgress
        ).result()
        finished = (await clotho_many({"finished": ("status", "by-command", *where)}, tmp_path))["finished"]
        assert "open or failed" not in finished.output, "what was cancelled was started again, and ended well"
    assert (done.scored, done.turns) == (2, 12)
    assert set(model.calls.completed.values()) == {1}


async def test_what_names_nothing_is_refused(cluster: Cluster) -> None:
    for name in ("no//run", "run/x", "run/g000001/r1/turn"):
        with pytest.raises(InvalidInput):
            Target.named(name)
    for operation in (operations(cluster).pause, operations(cluster).resume, operations(cluster).cancel):
        with pytest.raises(InvalidInput, match="no run 'unheard-of'"):
            await operation(Target.named("unheard-of"))
    with pytest.raises(InvalidInput, match="no run 'unheard-of'"):
        await operations(cluster).retry(Target.named("unheard-of"))


async def test_retry_starts_nothing_that_the_run_does_not_have(cluster: Cluster) -> None:
    async with serving(
        ScriptedModel(Script(conversations=(Conversation(variants=((say("Done."),),)),)))
    ) as url:
        await (await start(cluster, "two-by-two", url, groups=2, group_size=2)).result()
        with pytest.raises(InvalidInput, match="there is no group two-by-two/g000002"):
            await operations(cluster).retry(Target.named("two-by-two/g000002"))
        operate = operations(cluster)
        for operation in (operate.retry, operate.pause, operate.resume):
            with pytest.raises(
                InvalidInput, match="there is no rollout two-by-two/g000001/r2: groups of this run have 2"
            ):
                await operation(Target.named("two-by-two/g000001/r2"))
        with pytest.raises(InvalidInput, match=r"there is no rollout two-by-two/g000001/r1\.1: `clotho show"):
            await operate.pause(Target.named("two-by-two/g000001/r1.1"))


@pytest.mark.slow
async def test_a_deleted_run_is_gone_and_its_name_stays_taken(cluster: Cluster, tmp_path: Path) -> None:
    """The real command refuses a run that goes on, and leaves another alone whose name begins alike."""
    slow = ScriptedModel(SLOW.model_copy(update={"latency": 600}))
    where = ("--store", str(cluster.store), "--temporal", cluster.address)
    journal = cluster.open_journal()
    async with serving(slow) as url:
        handle = await start(cluster, "unwanted", url)
        await asked(slow, 1)
        refused = (await clotho_many({"running": ("delete", "unwanted", "--yes", *where)}, tmp_path))[
            "running"
        ]
        assert "run unwanted is running" in refused.complaint
        assert "`clotho cancel unwanted` first" in refused.complaint
        await operations(cluster).cancel(Target.named("unwanted"))
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    quick = ScriptedModel(Script(conversations=(Conversation(variants=((say("Done."),),)),)))
    async with serving(quick) as url:
        await (await start(cluster, "unwanted-too", url)).result()
        answers = await clotho_many(
            {
                "deleted": ("delete", "unwanted", "--yes", *where),
                "again": ("delete", "unwanted", "--yes", *where),
            },
            tmp_path,
        )
        assert answers["deleted"].status == 0, answers
        assert "no run 'unwanted'" in answers["again"].complaint
        assert await cluster.open_journal().keys("unwanted/") == []
        assert await journal.keys("unwanted-too/")
        with pytest.raises(InvalidInput, match="a run unwanted was deleted: choose another --run"):
            await start(cluster, "unwanted", url)


@pytest.mark.slow
async def test_limits_count_no_outage_and_no_pause(cluster: Cluster) -> None:
    """The model server is out, and then the run is paused for longer than the rollout may be active.

    Where the machine takes longer than that for the turns alone, the rollout may be active for longer.
    """
    faults = (Fault(kind="status", status=503, headers={"retry-after": "1"}, requests=(2, 3, 4)),)
    script = SLOW.model_copy(update={"faults": faults})
    clock = asyncio.get_running_loop().time
    for limit in (10.0, 60.0):
        name = f"limited-active-{limit:g}"
        model, target = Holding(script, held=after_turns(2)), Target.named(name)
        async with serving(model) as url:
            began = clock()
            handle = await start(cluster, name, url, overrides={"max_active_seconds": limit})
            await model.held(1)
            await operations(cluster).pause(target)
            model.release.set()
            await stopped(cluster, name, 1)

            async def longer_than_the_limit(began: float = began, limit: float = limit) -> bool:
                return clock() - began > limit + 5

            await eventually(longer_than_the_limit, "time to pass")
            await operations(cluster).resume(target)
            await handle.result()
        end = await read_end(cluster.open_journal(), f"{name}/g000000/r0")
        assert end is not None
        outcome, active = end.summary.ending.outcome, end.summary.active_seconds
        if outcome is Outcome.COMPLETED:
            break
    assert outcome is Outcome.COMPLETED
    assert active < limit


@pytest.mark.parametrize("act", ["pause", "reset"])
@pytest.mark.slow
async def test_an_activity_paused_or_reset_in_the_ui_costs_no_call(cluster: Cluster, act: str) -> None:
    name = f"activity-{act}"
    model = Holding(Script(conversations=(Conversation(variants=((say("Done."),),)),)), held=FIRST_TURNS)
    service, execution = cluster.client.workflow_service, WorkflowExecution(workflow_id=f"{name}/g000000/r0")
    namespace, turn = cluster.client.namespace, "sample_turn"
    async with serving(model) as url:
        handle = await start(cluster, name, url)
        await model.held(1)
        if act == "reset":
            began = await last_start(cluster, execution.workflow_id)
            await service.reset_activity(
                ResetActivityRequest(
                    namespace=namespace, execution=execution, type=turn, reset_heartbeat=True
                )
            )

            async def begun_anew() -> bool:
                return await last_start(cluster, execution.workflow_id) > began

            await eventually(begun_anew, "another attempt")
        else:
            await service.pause_activity(
                PauseActivityRequest(namespace=namespace, execution=execution, type=turn)
            )
            await eventually(lambda: is_paused(cluster, execution.workflow_id), "the paused attempt to end")
            assert model.calls.completed.total() == 0
            await service.unpause_activity(
                UnpauseActivityRequest(namespace=namespace, execution=execution, type=turn)
            )
        model.release.set()
        await handle.result()
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.slow
async def test_a_rollout_that_is_reset_in_the_ui_costs_no_call(cluster: Cluster) -> None:
    """Its worker has the former execution's task still, and learns in the middle of a turn that it is lost."""
    model = ScriptedModel(WITHIN_A_TASK)
    rollout = "rollout-reset/g000000/r0"
    async with serving(model) as url:
        await start(cluster, "rollout-reset", url)

        async def under_way() -> bool:
            return model.calls.completed.total() >= 3

        await eventually(under_way, "turns within the workflow's task")
        await reset(cluster.client, rollout)

        async def ended() -> bool:
            return await read_end(cluster.open_journal(), rollout) is not None

        await eventually(ended, "the end of the rollout")
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.slow
async def test_a_cancel_hangs_up_on_turns_that_are_sampled_within_their_workflows_tasks(
    cluster: Cluster,
) -> None:
    model = ScriptedModel(WITHIN_A_TASK)
    async with serving(model) as url:
        # several: some of them may be at a command when the cancel arrives
        handle = await start(cluster, "hung-up", url, group_size=6)

        async def under_way() -> bool:
            return model.calls.completed.total() >= 12

        await eventually(under_way, "turns within the workflows' tasks")
        await operations(cluster).cancel(Target.named("hung-up"))
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert model.calls.requests - model.calls.completed
    assert set(model.calls.requests.values()) == {1}


async def is_paused(cluster: Cluster, rollout: str) -> bool:
    state = (await pending(cluster, rollout)).state
    return state == PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED


async def last_start(cluster: Cluster, rollout: str) -> int:
    """When the last attempt at a rollout's activity began, in nanoseconds."""
    return (await pending(cluster, rollout)).last_started_time.ToNanoseconds()


async def pending(cluster: Cluster, rollout: str) -> PendingActivityInfo:
    described = await cluster.client.get_workflow_handle(rollout).describe()
    [activity] = described.raw_description.pending_activities
    return activity
