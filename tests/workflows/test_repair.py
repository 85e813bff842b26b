"""Siblings that fail for infrastructure reasons are repaired; a run that fails throughout stops itself."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send
from temporalio.client import WorkflowFailureError

from clotho.identifiers.keys import lease_key, scored_key, turn_key
from clotho.rollouts.campaign import CampaignProgress, FailureStreak
from clotho.rollouts.group import AttemptEntry, GroupEntry, RepairBounds
from clotho.run_settings import RunSettings
from clotho.runs.campaigns import CampaignHandle, read_campaign_request, start_requested
from clotho.runs.disturbances import Disturbance
from clotho.runs.export import Format, export_run
from clotho.runs.groups import scored_groups
from clotho.runs.operations import Operations
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Fault, Question, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import FAST, Cluster
from tests.support import PATIENCE_SECONDS, eventually, start
from tests.workflows.holding import Holding, after_turns
from tests.workflows.scripts import run, say, scoring

IMPATIENT = FAST.model_copy(
    update={
        "model": FAST.model.model_copy(
            update={"schedule_to_close_timeout": timedelta(seconds=PATIENCE_SECONDS)}
        )
    }
)
LONGER = {"retry-after": "3600"}
"""Headers of an outage that is to last for longer than that, so that it counts as a failure at once."""
EACH_TIME_ANOTHER = "(exit $(od -An -N1 -tu1 /dev/urandom))"
"""A command that ends with another exit status when it is replayed."""


class Mended:
    """A server that goes on with another model at the same address."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.app = Starlette(routes=[Mount("/", self._answer)])

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.model.app(scope, receive, send)


async def written(cluster: Cluster, *keys: str) -> None:
    async def there() -> bool:
        return all((cluster.store / key).exists() for key in keys)

    await eventually(there, f"journal entries {keys}")


async def group_entry(cluster: Cluster, group: str) -> GroupEntry:
    return await cluster.open_journal().read_required(scored_key(group), GroupEntry)


async def run_ids(cluster: Cluster, group: str, size: int) -> list[str]:
    handles = [cluster.client.get_workflow_handle(f"{group}/r{number}") for number in range(size)]
    return [(await handle.describe()).run_id for handle in handles]


async def test_two_of_eight_fail_and_six_stay_untouched(cluster: Cluster) -> None:
    """The two go on from their last journalled turn, in workflow runs of their own."""
    turns = (run("echo -n 1 > /work/score"), *[run("true")] * 3, say("Done."))
    model = Holding(Script(conversations=(Conversation(variants=(turns,)),)), held=after_turns(2))
    group, failing = "eight/g000000", (2, 5)
    async with serving(model) as url:
        handle = await start(cluster, "eight", url, group_size=8)
        await model.held(8)
        before = await run_ids(cluster, group, 8)
        for number in failing:
            await cluster.client.get_workflow_handle(f"{group}/r{number}").terminate("lost by a test")
        model.release.set()
        progress = await handle.result()
    after = await run_ids(cluster, group, 8)
    entry = await group_entry(cluster, group)
    assert [number for number in range(8) if before[number] != after[number]] == list(failing)
    assert (progress.scored, progress.failed) == (1, 0)
    assert [sibling.score for sibling in entry.siblings] == [1.0] * 8
    assert model.calls.paid_twice == {}
    assert {repair.failure.workflow for repair in entry.repairs} == {f"{group}/r2", f"{group}/r5"}
    assert {repair.failure.kind for repair in entry.repairs} == {"Terminated"}
    assert all(repair.continued_as == repair.failure.workflow for repair in entry.repairs)
    assert all(repair.turns >= 2 for repair in entry.repairs)
    assert [sibling.replacement_of for sibling in entry.siblings] == [None] * 8


@pytest.mark.slow
async def test_repairs_are_bounded_and_the_failed_attempt_is_kept(cluster: Cluster) -> None:
    """The model server is out for longer than a rollout waits, again and again."""
    outage = Fault(kind="status", status=500, headers=LONGER, requests=tuple(range(3, 30)))
    held = Holding(Script(conversations=(scoring(1.0),), faults=(outage,)), after_turns(1))
    group = "bounded/g000000"
    async with serving(held) as url:
        bounds = RepairBounds(per_group=2)
        handle = await start(cluster, "bounded", url, task_queues=IMPATIENT, repairs=bounds, groups=2)
        await held.held(2)
        held.release.set()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        journal = cluster.open_journal()
        failed = await journal.read_required(f"{group}/attempt/000", AttemptEntry)
        assert [failure.kind for failure in failed.failures] == ["ModelUnavailable"]
    model = ScriptedModel(Script(conversations=(scoring(1.0),)))
    async with serving(model) as url:
        await (await start(cluster, "bounded", url, task_queues=IMPATIENT, groups=2)).result()
    entry = await group_entry(cluster, group)
    assert [repair.failure.kind for repair in entry.repairs] == ["ModelUnavailable"] * 2
    assert model.calls.paid_twice == {}


@pytest.mark.slow
async def test_the_bound_of_a_run_holds_over_its_groups(cluster: Cluster) -> None:
    outage = Fault(kind="status", status=500, headers=LONGER, first_attempts=1000)
    model = ScriptedModel(Script(conversations=(scoring(1.0),), faults=(outage,)))
    async with serving(model) as url:
        bounds = RepairBounds(per_group=3, per_run=1)
        handle = await start(
            cluster, "run-bound", url, task_queues=IMPATIENT, repairs=bounds, groups=3, max_open_groups=1
        )
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert len(await cluster.open_journal().keys("run-bound/~repairs/")) == 1


@pytest.mark.slow
async def test_replacements_are_flagged_and_the_bias_shows(cluster: Cluster, tmp_path: Path) -> None:
    """Long rollouts lose a sandbox that can't be made again; what stands in for them is short, and is marked."""
    group, long, short = "biased/g000000", (0, 1), (2, 3)
    operate, target = Operations(cluster.open_journal(), cluster.client), Target.named("biased")

    def policy(question: Question) -> ScriptedTurn:
        replaced = ".1/" in question.key
        length = 12 if question.sibling in long and not replaced else 1
        return (
            run(f"echo -n 1 > /work/score; {EACH_TIME_ANOTHER}") if question.turn < length else say("Done.")
        )

    model = Holding(Script(conversations=(scoring(0),), latency=0.2), after_turns(4), policy)
    async with serving(model) as url:
        overrides = {"max_agent_turns": 20}
        settings = RunSettings(keep_diverged=False)
        handle = await start(cluster, "biased", url, group_size=4, overrides=overrides, settings=settings)
        await model.held(len(long))
        await operate.pause(target)
        model.release.set()

        async def at_boundaries() -> bool:
            reached = await operate.boundaries(target)
            return reached.running == reached.paused >= len(long)

        await eventually(at_boundaries, "long rollouts at a boundary")
        await asyncio.gather(*(lose_for_good(cluster, f"{group}/r{number}") for number in long))
        await operate.resume(target)
        await handle.result()
    entry = await group_entry(cluster, group)
    assert [sibling.rollout for sibling in entry.siblings] == [
        *(f"{group}/r{number}.1" for number in long),
        *(f"{group}/r{number}" for number in short),
    ]
    assert [sibling.replacement_of for sibling in entry.siblings[:2]] == [f"{group}/r0", f"{group}/r1"]
    assert {repair.failure.kind for repair in entry.repairs} == {"SandboxDiverged"}
    abandoned = [repair.turns for repair in entry.repairs]
    kept = [sibling.turns for sibling in entry.siblings]
    assert min(abandoned) > max(kept)
    assert all(repair.sampled_tokens > 0 for repair in entry.repairs)
    journal, whole, part = cluster.open_journal(), tmp_path / "all.jsonl", tmp_path / "part.jsonl"
    assert await export_run(journal, "biased", Format.MESSAGES, whole) == 4
    assert await export_run(journal, "biased", Format.MESSAGES, part, [Disturbance.REPLACED]) == 2
    flagged = [json.loads(line)["replacement_of"] for line in whole.read_text().splitlines()]
    assert flagged == [f"{group}/r0", f"{group}/r1", None, None]


async def lose_for_good(cluster: Cluster, rollout: str) -> None:
    """The sandbox goes, and so do the checkpoints: every call is replayed, and comes to something else."""
    for blob in (cluster.store / rollout / "checkpoint").iterdir():
        blob.unlink()
    await cluster.sandboxes().destroy(lease_key(rollout, 0))


@pytest.mark.slow
async def test_a_run_that_fails_throughout_pauses_and_goes_on_when_mended(cluster: Cluster) -> None:
    """The key stops working in the middle; the run stops with that reason, and needs no more than `resume`."""
    operate = Operations(cluster.open_journal(), cluster.client)
    refusal = Fault(kind="status", status=401, requests=tuple(range(7, 500)))
    before = Holding(Script(conversations=(scoring(1.0),), faults=(refusal,)), after_turns(1))
    after = ScriptedModel(Script(conversations=(scoring(1.0),)))
    server = Mended(before)
    async with serving(server) as url:
        handle = await start(cluster, "breaker", url, groups=12, group_size=2, max_open_groups=3)
        await before.held(6)  # no sibling is refused a turn before the other: a group fails with both
        before.release.set()
        stopped = await eventually(lambda: paused(handle), "the run to pause itself")
        assert stopped.paused is not None and stopped.paused.startswith("8 rollouts in a row failed alike")
        assert "ModelRejected: the model server answers 401" in stopped.paused
        assert stopped.scored + stopped.failed < 12
        metadata = await handle.query("__temporal_workflow_metadata")
        assert "**paused:** `8 rollouts in a row" in metadata.current_details
        server.model = after
        await operate.resume(Target.named("breaker"))
        done = await handle.result()
    assert (done.scored, done.failed) == (12, 0)
    assert len(await scored_groups(cluster.open_journal(), "breaker")) == 12
    assert after.calls.paid_twice == {}
    assert not before.calls.completed.keys() & after.calls.completed.keys()


@pytest.mark.slow
async def test_a_run_that_stops_takes_back_all_that_failed_alike(cluster: Cluster) -> None:
    """Also what failed before others were scored, but not what somebody cancelled."""
    operate = Operations(cluster.open_journal(), cluster.client)
    refusal = Fault(kind="status", status=401, requests=(1, *range(5, 500)))
    hanging = "taken-back/g000001"

    def policy(question: Question) -> ScriptedTurn:
        if hanging in question.key:
            return run("sleep 600")
        return run("echo -n 1 > /work/score") if question.turn == 0 else say("Done.")

    before = ScriptedModel(Script(conversations=(scoring(1.0),), faults=(refusal,)), policy)
    after = ScriptedModel(Script(conversations=(scoring(1.0),)), policy)
    server = Mended(before)
    async with serving(server) as url:
        handle = await start(cluster, "taken-back", url, groups=7, max_open_groups=1, stop_after_failures=3)
        await written(cluster, turn_key(f"{hanging}/r0", 0))
        await operate.cancel(Target.named(hanging))
        stopped = await eventually(lambda: paused(handle), "the run to pause itself")
        assert (stopped.scored, stopped.failed) == (1, 1)
        assert [failure.workflow for failure in stopped.failures] == [hanging]
        assert before.calls.requests.total() == 7, "a group was started after the run had stopped"
        server.model = after
        await operate.resume(Target.named("taken-back"))
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    done = await handle.query("progress", result_type=CampaignProgress)
    assert (done.scored, done.failed) == (6, 1)
    assert [failure.kind for failure in done.failures] == ["Cancelled"]


async def test_what_failed_before_a_campaign_was_continued_is_taken_back_too(cluster: Cluster) -> None:
    """The second run of a campaign, with what the first one hands over: one failure short of stopping."""
    operate = Operations(cluster.open_journal(), cluster.client)
    refusal = Fault(kind="status", status=401, requests=tuple(range(1, 500)))
    before = ScriptedModel(Script(conversations=(scoring(1.0),), faults=(refusal,)))
    server = Mended(before)
    async with serving(server) as url:
        handle = await start(cluster, "continued", url, groups=4, max_open_groups=1, stop_after_failures=9)
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        progress = await handle.query("progress", result_type=CampaignProgress)
        carried = {
            "next_group": 3,
            "progress": progress.model_copy(
                update={"failed": 3, "failures": progress.failures[:3], "groups": 4}
            ),
            "streak": FailureStreak(kind="ModelRejected", reason="the model server answers 401", rollouts=3),
            "failed_alike": {"ModelRejected": (0, 1, 2), "StoreUnavailable": (2,)},
            "stop_after_failures": 4,
        }
        order = await read_campaign_request(cluster.open_journal(), "continued")
        handle = await start_requested(cluster.client, order.model_copy(update=carried))
        stopped = await eventually(lambda: paused(handle), "the run to pause itself")
        assert (stopped.failed, stopped.failures) == (0, ())
        assert stopped.paused is not None and stopped.paused.startswith("4 rollouts in a row failed alike")
        server.model = ScriptedModel(Script(conversations=(scoring(1.0),)))
        await operate.resume(Target.named("continued"))
        done = await handle.result()
    assert (done.scored, done.failed) == (4, 0)


async def paused(handle: CampaignHandle) -> CampaignProgress | None:
    progress = await handle.query("progress", result_type=CampaignProgress)
    return progress if progress.paused is not None else None
