"""Runs from start to end on a real server: what comes out, and where it can be seen."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.service import RPCError

from clotho.embedded.model import EmbeddedModelServer
from clotho.errors import InvalidInput
from clotho.identifiers.keys import call_key, reward_key, sealed_key, turn_key
from clotho.rollouts.call import CallEntry
from clotho.rollouts.campaign import CampaignProgress
from clotho.rollouts.outcome import Outcome
from clotho.rollouts.turn import TurnEntry
from clotho.rollouts.verification import RewardEntry
from clotho.runs.campaigns import read_campaign_request
from clotho.runs.export import Format, export_run
from clotho.runs.groups import scored_groups
from clotho.runs.rollouts import read_end
from clotho.temporal.search_attributes import ENVIRONMENT, OUTCOME, REWARD, RUN
from clotho.testing.script import Conversation, Fault, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import ONE_FILE, beyond_the_budget, eventually, start, step_of, steps_done
from tests.workflows.scripts import run, say, scoring


def failure(error: WorkflowFailureError) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return str(cause)


async def test_a_group_is_sampled_verified_scored_and_sealed(cluster: Cluster, tmp_path: Path) -> None:
    model = ScriptedModel(Script(conversations=(scoring(1.0, 0.25, 0.5),)))
    async with serving(model) as url:
        progress = await (await start(cluster, "whole", url, group_size=3)).result()
    journal = cluster.open_journal()
    [(group, entry)] = await scored_groups(journal, "whole")
    assert [sibling.score for sibling in entry.siblings] == [1.0, 0.25, 0.5]
    assert {sibling.ending.outcome for sibling in entry.siblings} == {Outcome.COMPLETED}
    assert (progress.scored, progress.rollouts, progress.turns, progress.reward_sum) == (1, 3, 6, 1.75)
    assert await journal.keys(f"{group}/r0/") == [sealed_key(f"{group}/r0")]
    assert set(model.calls.completed.values()) == {1}
    lines = await export_run(journal, "whole", Format.GROUPS, tmp_path / "out" / "whole.jsonl")
    exported = json.loads((tmp_path / "out" / "whole.jsonl").read_text())
    assert lines == 1
    assert exported["scores"] == [1.0, 0.25, 0.5]
    assert [m["role"] for m in exported["rollouts"][1]["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_the_ui_can_filter_and_read_a_rollout(cluster: Cluster) -> None:
    async with serving(ScriptedModel(Script(conversations=(scoring(0.75),)))) as url:
        await (await start(cluster, "visible", url, groups=2)).result()

    async def listed() -> list[str]:
        query = f"{RUN}='visible' AND {OUTCOME}='completed' AND {REWARD} > 0.7 AND WorkflowType='Rollout'"
        found = [execution async for execution in cluster.client.list_workflows(query)]
        return sorted(e.id for e in found) if len(found) == 2 else []

    assert await eventually(listed, "two rollouts listed") == ["visible/g000000/r0", "visible/g000001/r0"]
    described = await cluster.client.get_workflow_handle("visible/g000000/r0").describe()
    shown = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    assert (shown[RUN], shown[OUTCOME], shown[REWARD]) == ("visible", "completed", 0.75)
    assert shown[ENVIRONMENT] == ONE_FILE
    history = await cluster.client.get_workflow_handle("visible/g000000/r0").fetch_history()
    *steps, one, other = steps_done(history.events)
    assert steps == [
        "turn 0",
        "create sandbox",
        "0.0 `terminal` `echo -n 0.75 > /work/score`",
        "turn 1",
        "verify",
    ]
    assert {one, other} == {"write end", "release sandbox"}, "side by side"


async def test_a_running_rollout_shows_its_turn_and_tool(cluster: Cluster) -> None:
    script = Script(conversations=(Conversation(variants=((run("sleep 600"), say("Done.")),)),))
    async with serving(ScriptedModel(script)) as url:
        handle = await start(cluster, "details", url)
        rollout = cluster.client.get_workflow_handle("details/g000000/r0")

        async def details() -> str | None:
            try:
                shown = await rollout.query("__temporal_workflow_metadata")
            except RPCError:
                return None
            text = str(shown.current_details)
            return text if "terminal" in text else None

        text = await eventually(details, "details that name the tool")
        assert "turn 0: calling `terminal`" in text
        assert "1 turns" in text
        assert "`clotho show details/g000000/r0`" in text
        for workflow, command in {
            "details/g000000": "show details/g000000",
            "details/~campaign": "status details",
        }.items():
            shown = await cluster.client.get_workflow_handle(workflow).query("__temporal_workflow_metadata")
            assert f"`clotho {command}`" in str(shown.current_details)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()


async def test_groups_that_run_side_by_side_are_all_counted(cluster: Cluster) -> None:
    """One of them fails, and the others' ends must not make the campaign forget it."""
    broken = Fault(kind="status", status=403, message="no access", requests=(3,))
    script = Script(conversations=(scoring(1.0),), faults=(broken,), latency_spread=0.3)
    async with serving(ScriptedModel(script)) as url:
        handle = await start(cluster, "side-by-side", url, groups=6)
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
        assert "1 of 6 groups failed" in failure(raised.value)
        progress = await handle.query("progress", result_type=CampaignProgress)
        assert (progress.scored, progress.failed, progress.running, progress.reward_sum) == (5, 1, 0, 5.0)
        again = await (await start(cluster, "side-by-side", url, groups=6)).result()
    assert (again.skipped, again.scored) == (5, 1)


async def test_finished_groups_are_not_done_again(cluster: Cluster) -> None:
    model = ScriptedModel(Script(conversations=(scoring(1.0, 0.0),)))
    async with serving(model) as url:
        await (await start(cluster, "again", url, groups=2, group_size=2)).result()
        paid = model.calls.completed.total()
        second = await (await start(cluster, "again", url, groups=3, group_size=2)).result()
    assert (second.skipped, second.scored) == (2, 1)
    assert model.calls.completed.total() == paid + 4
    assert model.calls.paid_twice == {}


async def test_a_run_with_other_settings_is_refused_with_both_values(cluster: Cluster) -> None:
    async with serving(ScriptedModel(Script(conversations=(scoring(1.0),)))) as url:
        await (await start(cluster, "fixed", url)).result()
        with pytest.raises(InvalidInput, match=r"seed: 0 in the store, 7 now"):
            await start(cluster, "fixed", url, seed=7)
        await (await start(cluster, "fixed", "http://127.0.0.1:9/v1")).cancel()


async def test_a_running_run_is_not_attached_to_by_another_order(cluster: Cluster) -> None:
    """Its campaign would keep its own numbers, and whoever gave others would wait for what never comes."""
    script = Script(conversations=(Conversation(variants=((run("sleep 600"),),)),))
    async with serving(ScriptedModel(script)) as url:
        handle = await start(cluster, "ordered", url, groups=2)
        same = await start(cluster, "ordered", url, groups=2)
        assert same.first_execution_run_id == handle.first_execution_run_id
        with pytest.raises(InvalidInput, match=r"is running, .*groups: 2 in the store, 1 now"):
            await start(cluster, "ordered", url, groups=1)
        assert (await read_campaign_request(cluster.open_journal(), "ordered")).groups == 2
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        larger = await start(cluster, "ordered", url, groups=3)
        await larger.cancel()
        with pytest.raises(WorkflowFailureError):
            await larger.result()


async def test_limits_are_outcomes_and_scored(cluster: Cluster) -> None:
    script = Script(conversations=(Conversation(variants=((run("echo -n 0.5 > /work/score"),),)),))
    async with serving(ScriptedModel(script)) as url:
        await (await start(cluster, "limited", url, overrides={"max_agent_turns": 3})).result()
        tokens = {"max_sampled_tokens": 20}
        await (await start(cluster, "limited-tokens", url, overrides=tokens)).result()
    for name, limit, turns in (("limited", "max_turns", 3), ("limited-tokens", "max_sampled_tokens", 1)):
        end = await read_end(cluster.open_journal(), f"{name}/g000000/r0")
        assert end is not None
        assert (end.summary.ending.outcome, end.summary.ending.limit) == (Outcome.LIMIT_REACHED, limit)
        assert (end.summary.turns, end.summary.score) == (turns, 0.5)


async def test_context_overflow_is_an_outcome(cluster: Cluster) -> None:
    overflow = Fault(kind="status", status=400, message="maximum context length is 10 tokens", requests=(2,))
    script = Script(
        conversations=(Conversation(variants=((run("echo -n 1 > /work/score"),),)),), faults=(overflow,)
    )
    async with serving(ScriptedModel(script)) as url:
        await (await start(cluster, "overflow", url)).result()
    end = await read_end(cluster.open_journal(), "overflow/g000000/r0")
    assert end is not None
    assert end.summary.ending.outcome is Outcome.CONTEXT_OVERFLOW
    assert end.summary.score == 1.0


async def test_garbage_tool_calls_are_answered_and_counted(cluster: Cluster) -> None:
    calls = (
        ScriptedCall(name="no_such_tool", arguments={}),
        ScriptedCall(name="terminal", arguments="{not json"),
        ScriptedCall(name="terminal", arguments={"cmd": "ls"}),
        ScriptedCall(name="bad\nname" * 50, arguments="[]"),
        ScriptedCall(name="terminal", arguments={"command": "echo -n 1 > /work/score"}),
    )
    script = Script(conversations=(Conversation(variants=((ScriptedTurn(calls=calls), say("Done.")),)),))
    async with serving(ScriptedModel(script)) as url:
        await (await start(cluster, "garbage", url)).result()
    journal = cluster.open_journal()
    end = await read_end(journal, "garbage/g000000/r0")
    assert end is not None
    assert (end.summary.tool_calls, end.summary.tool_errors, end.summary.score) == (5, 4, 1.0)
    results = [
        await journal.read_required(call_key("garbage/g000000/r0", f"0000-0{index}"), CallEntry)
        for index in range(5)
    ]
    assert "Available tools: patch" in results[0].content
    assert "retry with valid JSON" in results[1].content
    assert "command" in results[2].content
    assert json.loads(results[4].content)["exit_code"] == 0


async def test_huge_and_binary_output_reaches_the_model_bounded(cluster: Cluster) -> None:
    turns = (
        run("head -c 10000000 /dev/zero | tr '\\0' x"),
        run("head -c 3000 /dev/urandom; printf '\\377\\000\\376'"),
        run("echo -n 1 > /work/score"),
        say("Done."),
    )
    script = Script(conversations=(Conversation(variants=(turns,)),))
    async with serving(ScriptedModel(script)) as url:
        await (await start(cluster, "huge", url)).result()
    journal = cluster.open_journal()
    huge = await journal.read_required(call_key("huge/g000000/r0", "0000-00"), CallEntry)
    assert len(huge.content) < 60_000
    assert json.loads(huge.content)["exit_code"] == 0
    binary = await journal.read_required(call_key("huge/g000000/r0", "0001-00"), CallEntry)
    assert json.loads(binary.content)["exit_code"] == 0
    end = await read_end(journal, "huge/g000000/r0")
    assert end is not None and end.summary.score == 1.0


async def test_history_stays_small_and_flat(cluster: Cluster) -> None:
    """At most 3 KB a turn and its call with 10 KB of output, and half of it where turns are many."""
    per_turn = {}
    for turns in (5, 40):
        command = run("head -c 10000 /dev/zero | tr '\\0' y")
        script = Script(conversations=(Conversation(variants=(((command,) * turns) + (say("Done."),),)),))
        async with serving(ScriptedModel(script)) as url:
            overrides = {"max_agent_turns": turns + 1}
            await (await start(cluster, f"history-{turns}", url, overrides=overrides)).result()
        history = await cluster.client.get_workflow_handle(f"history-{turns}/g000000/r0").fetch_history()
        per_turn[turns] = sum(event.ByteSize() for event in within_the_budget(history.events)) / turns
    assert per_turn[40] < 3_000
    marginal = (per_turn[40] * 40 - per_turn[5] * 5) / 35
    assert marginal < 1_500
    assert per_turn[40] <= per_turn[5]


def within_the_budget(history: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """The events without those that a busy machine adds: local steps not done in time, done again as activities."""
    local = {step_of(event) for event in history if beyond_the_budget(event)}
    again = {
        event.event_id
        for event in history
        if event.HasField("activity_task_scheduled_event_attributes") and step_of(event) in local
    }

    def added(event: HistoryEvent) -> bool:
        started, completed = (
            event.activity_task_started_event_attributes,
            event.activity_task_completed_event_attributes,
        )
        of = {event.event_id, started.scheduled_event_id, completed.scheduled_event_id}
        return beyond_the_budget(event) or bool(of & again)

    return [event for event in history if not added(event)]


async def test_messages_carry_reasoning_and_results_in_order(cluster: Cluster) -> None:
    thinking = ScriptedTurn(
        reasoning="Let me look.",
        calls=(
            ScriptedCall(name="terminal", arguments={"command": "echo one; export A=5; cd /tmp"}),
            ScriptedCall(name="terminal", arguments={"command": "echo $A $PWD"}),
        ),
    )
    seen: list[list[str | None]] = []

    def policy(question: object) -> ScriptedTurn:
        messages = question.messages  # type: ignore[attr-defined]
        seen.append([message.role for message in messages])
        if len(messages) == 1:
            return thinking
        assert messages[1].reasoning_content == "Let me look."
        return say(json.loads(str(messages[-1].content))["output"])

    model = ScriptedModel(Script(conversations=(scoring(0),)), policy)
    async with serving(model) as url:
        await (await start(cluster, "order", url)).result()
    assert seen == [["user"], ["user", "assistant", "tool", "tool"]]
    final = await cluster.open_journal().read_required(turn_key("order/g000000/r0", 1), TurnEntry)
    assert final.sampled is not None
    assert str(final.sampled.message.content).strip() == "5 /tmp"


async def test_a_failing_sibling_leaves_the_others_and_can_be_retried(cluster: Cluster) -> None:
    broken = Fault(kind="status", status=403, message="no access", requests=(2, 3))
    model = ScriptedModel(
        Script(
            conversations=(Conversation(match="", variants=scoring(1.0, 0.5, 0.0).variants),),
            faults=(broken,),
        )
    )
    async with serving(model) as url:
        handle = await start(cluster, "sibling", url, group_size=3)
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
        assert "1 of 1 groups failed" in failure(raised.value)
        assert "ModelRejected" in failure(raised.value)
        assert await scored_groups(cluster.open_journal(), "sibling") == []
        statuses = [
            (await cluster.client.get_workflow_handle(f"sibling/g000000/r{n}").describe()).status
            for n in range(3)
        ]
        assert statuses.count(WorkflowExecutionStatus.FAILED) >= 1
        assert statuses.count(WorkflowExecutionStatus.COMPLETED) >= 1
        await (await start(cluster, "sibling", url, group_size=3)).result()
    [(_, entry)] = await scored_groups(cluster.open_journal(), "sibling")
    assert [sibling.score for sibling in entry.siblings] == [1.0, 0.5, 0.0]
    assert model.calls.paid_twice == {}


async def test_what_would_fail_every_rollout_fails_at_once(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    orders: dict[str, dict[str, Any]] = {
        "NO_SUCH_KEY is not set": {"run": "no-key", "api_key_variable": "NO_SUCH_KEY"},
        "does not exist": {"run": "no-model", "model": "unheard-of"},
    }
    for said, order in orders.items():
        handle = await start(cluster, model_url=f"{embedded_model.url}/v1", groups=4, **order)
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
        assert said in failure(raised.value)
        assert await cluster.open_journal().keys(f"{order['run']}/g000000/") == []


@pytest.mark.slow
async def test_cancelling_a_run_ends_everything_canceled_without_rewards(cluster: Cluster) -> None:
    script = Script(conversations=(Conversation(variants=((run("sleep 600"),),)),))
    async with serving(ScriptedModel(script)) as url:
        handle = await start(cluster, "cancelled", url, group_size=2)

        async def commands_run() -> bool:
            open_ = [
                execution
                async for execution in cluster.client.list_workflows(
                    f"{RUN}='cancelled' AND WorkflowType='Rollout' AND ExecutionStatus='Running'"
                )
            ]
            histories = [await cluster.client.get_workflow_handle(e.id).fetch_history() for e in open_]
            return len(histories) == 2 and all(
                any((step_of(event) or "").startswith("0.0 ") for event in history.events)
                for history in histories
            )

        await eventually(commands_run, "both rollouts in their command")
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    for name in ("cancelled/~campaign", "cancelled/g000000", "cancelled/g000000/r0", "cancelled/g000000/r1"):
        described = await cluster.client.get_workflow_handle(name).describe()
        assert described.status is WorkflowExecutionStatus.CANCELED, name
    journal = cluster.open_journal()
    assert await journal.read(reward_key("cancelled/g000000/r0"), RewardEntry) is None
    leases = await cluster.sandboxes().leases()
    assert not [held.lease for held in leases if held.lease.startswith("cancelled/")]


async def test_no_sandbox_stays_behind(cluster: Cluster) -> None:
    """After every test above, whatever became of its rollouts."""

    async def none_left() -> bool:
        return not await cluster.sandboxes().leases()

    await eventually(none_left, "no sandbox left", 15)
