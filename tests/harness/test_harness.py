"""Rollouts whose agent is a program with a loop of its own."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError

from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import DYNAMIC_CONFIG, TemporalServer
from clotho.identifiers.keys import agent_key, lease_key, turn_key
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.transcript import read_transcript
from clotho.run_settings import RunSettings
from clotho.runs.operations import Boundaries, Operations
from clotho.runs.rollouts import program_ends, read_end
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster, cluster_in
from tests.harness.agent import TOOL
from tests.support import events_of, eventually, steps_done
from tests.workflows.holding import FIRST_TURNS, Holding, after_turns
from tests.workflows.scripts import run, say

ENVIRONMENT = "tests.environments.harnessed:Harnessed"
AGENT = Agent(kind=AgentKind.PROGRAM, program="command")
LONG = 60
"""Events of a history that a server calls long."""
COMMAND = ["python3", "/work/agent.py", "{task_file}"]
TURNS = (
    run("echo a >> /work/log"),
    run("wc -l < /work/log"),
    run("echo -n 0.75 > /work/score"),
    say("Done."),
)


def script(latency: float = 0.0) -> Script:
    return Script(conversations=(Conversation(variants=(TURNS,)),), latency=latency)


def long_script(turns: int, latency: float = 0.0) -> Script:
    many = (*[run("echo a >> /work/log")] * turns, run("echo -n 0.5 > /work/score"), say("Done."))
    return Script(conversations=(Conversation(variants=(many,)),), latency=latency)


async def start(cluster: Cluster, name: str, url: str, **order: Any) -> Any:
    order.setdefault("settings", RunSettings(plugins={"harness": {"command": COMMAND}}))
    return await cluster.start(name, url, environment=ENVIRONMENT, agent=AGENT, **order)


async def test_a_program_acts_and_is_rewarded(cluster: Cluster) -> None:
    model, rollout = ScriptedModel(script()), "harness/g000000/r0"
    async with serving(model) as url:
        await (await start(cluster, "harness", url)).result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None
    assert (end.summary.score, end.summary.turns, end.summary.tool_calls) == (0.75, len(TURNS), 0)
    done = steps_done(await events_of(cluster, rollout))
    assert "run the agent's program" in done and {f"turn {turn}" for turn in range(len(TURNS))} <= set(done)
    assert set(model.calls.requests.values()) == {1}
    transcript = await read_transcript(cluster.open_journal(), rollout, len(TURNS))
    assert [[call.content for call in step.calls] for step in transcript.steps] == [[""], ["1\n"], [""], []]
    assert [step.added[0].content if step.added else None for step in transcript.steps] == [
        "task 0",
        None,
        None,
        None,
    ]
    assert transcript.offered == (TOOL,)
    (output,) = [each.output for each in (await program_ends(cluster.open_journal(), rollout, 0)).values()]
    assert output == "Done."


@pytest.mark.parametrize("version", ["own", "0.9"])
async def test_a_program_of_another_version_is_refused(cluster: Cluster, version: str) -> None:
    """The program is `python3`, whose task is the harness."""
    name = f"harness-version-{version.replace('.', '-')}"
    told = subprocess.run(
        ["/usr/bin/python3", "--version"], capture_output=True, text=True, check=True
    ).stdout
    own = told.split()[1]
    harness = {"command": COMMAND, "version": own if version == "own" else version}
    model, rollout = ScriptedModel(script()), f"{name}/g000000/r0"
    async with serving(model) as url:
        handle = await start(cluster, name, url, settings=RunSettings(plugins={"harness": harness}))
        if version == "own":
            await handle.result()
            end = await read_end(cluster.open_journal(), rollout)
            assert end is not None and end.summary.score == 0.75
            return
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert not model.calls.requests
    refusal = f"python3 isn't of version 0.9: it tells 'Python {own}'"
    with pytest.raises(WorkflowFailureError) as failed:
        await cluster.client.get_workflow_handle(rollout).result()
    assert isinstance(activity := failed.value.cause, ActivityError) and refusal in str(activity.cause)


LIMITED = {"max_agent_turns": 2}


async def test_a_limit_ends_the_program(cluster: Cluster) -> None:
    model, rollout = ScriptedModel(script()), "harness-limit/g000000/r0"
    async with serving(model) as url:
        await (await start(cluster, "harness-limit", url, overrides=LIMITED)).result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and end.summary.turns == 2
    assert end.summary.ending == Ending(outcome=Outcome.LIMIT_REACHED, limit="max_turns")


@pytest.mark.parametrize(
    "point",
    [
        "turn.asking",
        "turn.answered",
        "turn.journalled",
        "journal.write",
        "program.ended",
        "program.journalled",
    ],
)
@pytest.mark.slow
async def test_a_worker_that_is_killed_loses_one_answer_at_most(private_cluster: Cluster, point: str) -> None:
    cluster, name = private_cluster, f"harness-{point.replace('.', '-')}"
    rollout, model = f"{name}/g000000/r0", ScriptedModel(script())
    of_turn = point.startswith(("turn.", "journal."))
    subject = turn_key(rollout, 1) if of_turn else agent_key(rollout, 0)
    doomed = await cluster.start_worker(CLOTHO_FAIL=f"{point}[{subject}]:kill")
    async with serving(model) as url:
        handle = await start(cluster, name, url)
        await doomed.wait()
        await cluster.start_worker()
        await handle.result()
    lost = {turn_key(rollout, 1)} if point in ("turn.answered", "journal.write") else set()
    assert set(model.calls.paid_twice) == lost
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.turns) == (0.75, len(TURNS))
    assert end.summary.losses == (), "the program outlived the worker"


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.slow
async def test_a_lost_sandbox_is_made_anew_and_its_calls_are_answered_again(
    cluster: Cluster, turns: int
) -> None:
    name = f"harness-lost-{turns}"
    rollout, model = f"{name}/g000000/r0", Holding(script(), held=after_turns(turns))
    if turns == 0:
        model.hold(FIRST_TURNS)
    async with serving(model) as url:
        handle = await start(cluster, name, url)
        await model.held(1)
        await cluster.sandboxes().destroy(lease_key(rollout, 0))
        model.release.set()
        await handle.result()
    assert set(model.calls.requests.values()) == {1}
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.turns) == (0.75, len(TURNS))
    entry = await cluster.open_journal().read_required(agent_key(rollout, 1), ProgramEntry)
    assert (entry.calls, entry.matched, entry.diverged_at) == (len(TURNS), turns + 1, None)
    assert end.summary.losses == (Fidelity.REPLAYED,)


@pytest.mark.slow
async def test_a_paused_program_waits_for_its_answer(cluster: Cluster) -> None:
    rollout, model = "harness-paused/g000000/r0", Holding(long_script(12, latency=0.5), held=after_turns(1))
    target, operations = Target.named("harness-paused"), Operations(cluster.open_journal(), cluster.client)
    async with serving(model) as url:
        handle = await start(cluster, "harness-paused", url, overrides={"max_agent_turns": 50})
        await model.held(1)
        await operations.pause(target)
        model.release.set()

        async def rests() -> bool:
            return await operations.boundaries(target) == Boundaries(1, 1)

        await eventually(rests, "the rollout at rest")
        asked = model.calls.requests.total()
        assert model.calls.completed.total() == asked < 12
        await operations.resume(target)
        await handle.result()
    assert set(model.calls.requests.values()) == {1}
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.turns) == (0.5, 14)


@pytest.mark.slow
async def test_a_program_goes_on_while_its_workflow_continues_as_new(folder: Path) -> None:
    turns, rollout = 30, "harness-long/g000000/r0"
    model = ScriptedModel(long_script(turns))
    config = {**DYNAMIC_CONFIG, "limit.historyCount.suggestContinueAsNew": LONG}
    log = folder / "temporal-harness.log"
    async with (
        TemporalServer(await temporal_binary(), log, ui_port=None, dynamic_config=config) as server,
        cluster_in(server, folder / "harness-long", "harness-long") as cluster,
        serving(model) as url,
    ):
        await cluster.start_worker()
        handle = await start(cluster, "harness-long", url, overrides={"max_agent_turns": 50})
        await handle.result()
        last = await cluster.client.get_workflow_handle(rollout).describe()
        first = last.raw_description.workflow_execution_info.first_run_id
        end = await read_end(cluster.open_journal(), rollout)
    assert first != last.run_id, "it has continued as new"
    assert set(model.calls.requests.values()) == {1}
    assert end is not None and (end.summary.score, end.summary.turns) == (0.5, turns + 2)
