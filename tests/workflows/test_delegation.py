"""Tasks that calls delegate: the rollouts that do them, their ends, and what becomes of them with their parents."""

import json
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from clotho.cli.show import show
from clotho.errors import InvalidInput
from clotho.failure_policy import CANCELLED
from clotho.identifiers.keys import attempt_prefix, call_key, prompt_key, scored_key, turn_key
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import AttemptEntry, GroupEntry
from clotho.rollouts.rollout import Prompt, RolloutSummary
from clotho.rollouts.turn import TurnEntry
from clotho.run_settings import RunSettings
from clotho.runs.children import NOTHING_SAID
from clotho.runs.export import Format, export_lines
from clotho.runs.operations import Boundaries, Operations
from clotho.runs.repairs import group_repairs
from clotho.runs.rollouts import read_end
from clotho.runs.targets import Target
from clotho.testing.script import Fault
from clotho.testing.scripted_model import ScriptedModel, serving
from clotho.training.siblings import read_siblings
from tests.cluster import Cluster
from tests.environments.delegating import NAME, delegates, script
from tests.support import eventually
from tests.workflows.losses import WAITS, made, output
from tests.workflows.scripts import run, say
from tests.workflows.test_operations import seen_by_turns

SCORES = run("echo -n 1 > /work/score")


async def shown(cluster: Cluster, rollout: str, call: str) -> dict[str, Any]:
    """The result of a call, as the model was shown it."""
    entry = await cluster.open_journal().read_required(call_key(rollout, call), CallEntry)
    result: dict[str, Any] = json.loads(entry.content)
    return result


async def repaired(cluster: Cluster, group: str) -> None:
    async def claimed() -> bool:
        return bool(await group_repairs(cluster.open_journal(), group))

    await eventually(claimed, f"a repair in {group}")


async def ended(cluster: Cluster, rollout: str) -> RolloutSummary:
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None, f"{rollout} has not ended"
    return end.summary


async def test_a_child_does_its_task_in_a_sandbox_of_its_own(cluster: Cluster) -> None:
    turns = (run("echo parent > /work/name"), delegates("look around", context="Start in /work."))
    looks = (run("cat /work/name; echo child > /work/name"), say("There was nothing."))
    model = ScriptedModel(script(*turns, SCORES, run("cat /work/name"), say("Done."), look=looks))
    async with serving(model) as url:
        handle = await cluster.start("delegated", url, environment=NAME)
        await handle.result()
    rollout, child = "delegated/g000000/r0", "delegated/g000000/r0~0001-00"
    assert await shown(cluster, rollout, "0001-00") == {
        "status": "completed",
        "turns": 2,
        "result": "There was nothing.",
    }
    assert "No such file" in await output(cluster, child, "0000-00")
    assert await output(cluster, rollout, "0003-00") == "parent"
    journal = cluster.open_journal()
    prompt = await journal.read_required(prompt_key(child), Prompt)
    assert prompt.delegated is not None and prompt.delegated.parent == rollout
    assert "delegate_task" not in prompt.delegated.tools and "terminal" in prompt.delegated.tools
    assert prompt.messages[-1].content == "look around\n\nContext:\nStart in /work."
    entry = await journal.read_required(call_key(rollout, "0001-00"), CallEntry)
    assert entry.child == child and entry.error is None
    parent, did = await ended(cluster, rollout), await ended(cluster, child)
    assert (parent.score, parent.parent, did.parent) == (1.0, None, rollout)
    assert parent.delegated_tokens == did.sampled_tokens
    assert set(model.calls.requests.values()) == {1}


async def test_a_child_is_exported_and_shown_with_its_parent(cluster: Cluster) -> None:
    rollout, child = "family/g000000/r0", "family/g000000/r0~0000-00"
    model = ScriptedModel(script(delegates("work"), SCORES, say("Done."), work=(say("It was easy."),)))
    async with serving(model) as url:
        handle = await cluster.start("family", url, environment=NAME)
        await handle.result()
    journal = cluster.open_journal()
    (text,) = [line async for line in export_lines(journal, "family", Format.MESSAGES)]
    line = json.loads(text)
    (exported,) = line["children"]
    assert (line["rollout"], exported["rollout"], exported["parent"]) == (rollout, child, rollout)
    assert exported["messages"][-1]["content"] == "It was easy." and "reward" not in exported
    console = Console(file=StringIO(), width=120, record=True)
    await show(console, journal, rollout)
    await show(console, journal, child)
    seen = console.export_text()
    assert f"clotho show {child}" in seen and f"task of {rollout}, call 0000-00" in seen
    entry = await journal.read_required(scored_key("family/g000000"), GroupEntry)
    (sibling,) = await read_siblings(journal, entry)
    assert [each.rollout for each in sibling.children] == [child]


async def test_running_out_of_turns_is_a_result(cluster: Cluster) -> None:
    turns = (delegates("loop"), SCORES, say("Done."))
    async with serving(ScriptedModel(script(*turns, loop=(run("true"),)))) as url:
        handle = await cluster.start("out-of-turns", url, environment=NAME)
        await handle.result()
    assert await shown(cluster, "out-of-turns/g000000/r0", "0000-00") == {
        "status": "limit_reached",
        "limit": "max_turns",
        "turns": 4,
        "result": NOTHING_SAID,
    }
    assert (await ended(cluster, "out-of-turns/g000000/r0")).score == 1.0


async def test_a_task_that_may_not_be_delegated_is_refused(cluster: Cluster) -> None:
    """Toolsets that there aren't, a task too many, no goal; and a child may delegate no further."""
    again = (delegates("again"), say("It can't be done."))
    turns = (delegates("first", toolsets=["web"]), delegates("first"), delegates("second"), delegates(""))
    model = ScriptedModel(script(*turns, SCORES, say("Done."), first=again))
    async with serving(model) as url:
        bounds = RunSettings(delegation={"children": 1})
        handle = await cluster.start("refused-tasks", url, environment=NAME, settings=bounds)
        await handle.result()
    rollout = "refused-tasks/g000000/r0"
    errors = [(await shown(cluster, rollout, f"000{turn}-00")).get("error", "") for turn in range(4)]
    assert "No toolset 'web'" in errors[0] and "delegation, file, terminal" not in errors[0]
    assert not errors[1] and "may delegate 1 tasks" in errors[2] and "goal" in errors[3]
    assert "Unknown tool" in (await shown(cluster, f"{rollout}~0001-00", "0000-00"))["error"]
    assert (await ended(cluster, rollout)).tool_errors == 1
    assert not await cluster.open_journal().keys(f"{rollout}~0002-00/")


async def test_a_child_that_was_terminated_goes_on_when_its_parent_is_repaired(cluster: Cluster) -> None:
    """With the command that it was waiting for."""
    rollout, child = "repaired-task/g000000/r0", "repaired-task/g000000/r0~0000-00"
    works = (
        run("echo one >> /work/log"),
        run(f"echo two >> /work/log; {WAITS}; cat /work/log"),
        say("Two lines."),
    )
    model = ScriptedModel(script(delegates("work"), SCORES, say("Done."), work=works))
    async with serving(model) as url:
        handle = await cluster.start("repaired-task", url, environment=NAME)
        waiting = await eventually(lambda: made(cluster, child, 0, "waiting"), "the child's command")
        await cluster.client.get_workflow_handle(child).terminate("to be repaired")
        await repaired(cluster, "repaired-task/g000000")
        waiting.with_name("go").touch()
        await handle.result()
    assert (await shown(cluster, rollout, "0000-00"))["result"] == "Two lines."
    assert (await output(cluster, child, "0001-00")).split() == ["one", "two"]
    repairs = await group_repairs(cluster.open_journal(), "repaired-task/g000000")
    assert [(each.failure.workflow, each.continued_as) for each in repairs] == [(rollout, rollout)]
    assert set(model.calls.requests.values()) == {1}


async def test_a_child_that_fails_is_its_parents_failure(cluster: Cluster) -> None:
    refused = Fault(kind="status", status=403, requests=tuple(range(2, 100)))
    turns = script(delegates("work"), say("Done."), work=(say("Never."),))
    async with serving(ScriptedModel(turns.model_copy(update={"faults": (refused,)}))) as url:
        handle = await cluster.start("failed-task", url, environment=NAME)
        with pytest.raises(WorkflowFailureError) as raised:
            await handle.result()
    rollout = "failed-task/g000000/r0"
    assert "scripted fault" in str(raised.value.cause)
    journal = cluster.open_journal()
    assert await journal.read(call_key(rollout, "0000-00"), CallEntry) is None
    assert await read_end(journal, rollout) is None


@pytest.mark.parametrize("sandbox", ["own", "shared"])
@pytest.mark.slow
async def test_a_cancel_reaches_the_child(cluster: Cluster, sandbox: str) -> None:
    name = f"cancelled-{sandbox}"
    rollout, child = f"{name}/g000000/r0", f"{name}/g000000/r0~0000-00"
    settings = RunSettings(delegation={"sandbox": sandbox})
    model = ScriptedModel(script(delegates("wait"), say("Done."), wait=(run(WAITS), say("Never."))))
    async with serving(model) as url:
        handle = await cluster.start(name, url, environment=NAME, settings=settings)
        holder = child if sandbox == "own" else rollout
        await eventually(lambda: made(cluster, holder, 0, "waiting"), "the child's command")
        await Operations(cluster.open_journal(), cluster.client).cancel(Target.named(name))
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    for each in (child, rollout):
        described = await cluster.client.get_workflow_handle(each).describe()
        assert described.status is WorkflowExecutionStatus.CANCELED, each
    assert not [held for held in await cluster.sandboxes().leases() if held.lease.startswith(rollout)]
    assert await read_end(cluster.open_journal(), child) is None


async def test_a_child_that_is_cancelled_by_hand_fails_its_parent_as_cancelled(cluster: Cluster) -> None:
    child = "cancelled-child/g000000/r0~0000-00"
    model = ScriptedModel(script(delegates("wait"), say("Done."), wait=(run(WAITS), say("Never."))))
    operate = Operations(cluster.open_journal(), cluster.client)
    async with serving(model) as url:
        handle = await cluster.start("cancelled-child", url, environment=NAME)
        await eventually(lambda: made(cluster, child, 0, "waiting"), "the child's command")
        with pytest.raises(InvalidInput, match="does a task of cancelled-child/g000000/r0: retry that"):
            await operate.retry(Target.named(child))
        await operate.cancel(Target.named(child))
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    described = await cluster.client.get_workflow_handle("cancelled-child/g000000/r0").describe()
    assert described.status is WorkflowExecutionStatus.FAILED
    keys = await cluster.open_journal().keys(attempt_prefix("cancelled-child/g000000"))
    (attempt,) = await cluster.open_journal().read_many(keys, AttemptEntry)
    assert attempt is not None and [each.kind for each in attempt.failures] == [CANCELLED]


async def stopped(cluster: Cluster, target: Target) -> bool:
    """Whether the child, or after it its parent, waits at a boundary; a parent that waits for it doesn't count."""
    operate = Operations(cluster.open_journal(), cluster.client)
    return await operate.boundaries(target) == Boundaries(1, 1)


async def test_a_pause_reaches_the_child(cluster: Cluster) -> None:
    rollout, child = "paused-task/g000000/r0", "paused-task/g000000/r0~0000-00"
    target = Target.named(rollout)
    model = ScriptedModel(script(delegates("wait"), say("Done."), wait=(run(WAITS), say("Waited."))))
    operate = Operations(cluster.open_journal(), cluster.client)
    async with serving(model) as url:
        handle = await cluster.start("paused-task", url, environment=NAME)
        waiting = await eventually(lambda: made(cluster, child, 0, "waiting"), "the child's command")
        await operate.pause(target)
        await seen_by_turns()
        waiting.with_name("go").touch()
        await eventually(lambda: stopped(cluster, target), "the child to be paused")
        assert await cluster.open_journal().read(turn_key(child, 1), TurnEntry) is None
        await operate.resume(target)
        await handle.result()
    assert (await ended(cluster, child)).turns == 2
    assert (await shown(cluster, rollout, "0000-00"))["result"] == "Waited."


@pytest.mark.slow
async def test_a_run_whose_rollouts_delegate_can_be_paused(cluster: Cluster) -> None:
    """Turns see a run's pause within a second, which five turns take longer than."""
    child, target = "paused-run/g000000/r0~0000-00", Target.named("paused-run")
    waits = (run(WAITS), run("true"), run("true"), say("Waited."))
    model = ScriptedModel(script(delegates("wait"), SCORES, say("Done."), wait=waits, latency=0.4))
    operate = Operations(cluster.open_journal(), cluster.client)
    async with serving(model) as url:
        handle = await cluster.start("paused-run", url, environment=NAME)
        waiting = await eventually(lambda: made(cluster, child, 0, "waiting"), "the child's command")
        await operate.pause(target)
        waiting.with_name("go").touch()
        await eventually(lambda: stopped(cluster, target), "the run to be paused")
        await operate.resume(target)
        await handle.result()
    assert (await ended(cluster, "paused-run/g000000/r0")).score == 1.0


async def test_a_replay_makes_the_childrens_turns_again(cluster: Cluster) -> None:
    works = (run("echo -n 1 > /work/score"), say("Scored."))
    model = ScriptedModel(script(delegates("work"), say("Done."), work=works))
    async with serving(model) as url:
        settings = RunSettings(delegation={"sandbox": "shared"})
        await (await cluster.start("taped", url, environment=NAME, settings=settings)).result()
        asked = len(model.calls.requests)
        again = Agent(kind=AgentKind.REPLAY, replays="taped")
        handle = await cluster.start("taped-again", url, environment=NAME, settings=settings, agent=again)
        await handle.result()
        assert len(model.calls.requests) == asked
    replayed = await ended(cluster, "taped-again/g000000/r0~0000-00")
    assert (replayed.turns, replayed.tool_calls) == (2, 1)
    assert (await ended(cluster, "taped-again/g000000/r0")).score == 1.0
