"""A run's settings about lost sandboxes: when checkpoints are taken, whether inexact ones are kept, how many."""

import asyncio

import pytest
from temporalio.client import WorkflowFailureError

from clotho.identifiers.keys import call_key, end_key, reward_key, scored_key
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import AttemptEntry, GroupEntry, RepairBounds
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import EndEntry
from clotho.run_settings import CheckpointPolicy, RunSettings
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Question, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.losses import WAITS, diverging, kill_sandbox, lose_while_waiting, made, output
from tests.workflows.scripts import run, say, scoring

MOST_LOSSES = 10
"""Losses that a rollout survives in all, as docs/durability.md says."""


def calls(*commands: str) -> ScriptedTurn:
    return ScriptedTurn(
        calls=tuple(ScriptedCall(name="terminal", arguments={"command": command}) for command in commands)
    )


def played(*turns: ScriptedTurn) -> ScriptedModel:
    return ScriptedModel(Script(conversations=(Conversation(variants=((*turns, say("Done.")),)),)))


@pytest.mark.parametrize(
    ("policy", "checkpointed", "fidelity", "runs"),
    [
        (CheckpointPolicy.EVERY_CALL, [True, True, True], Fidelity.EXACT, "first second"),
        (CheckpointPolicy.EVERY_TURN, [True, False, True], Fidelity.REPLAYED, "first second"),
        (CheckpointPolicy.OFF, [False, False, False], Fidelity.REPLAYED, "first second"),
    ],
)
async def test_a_checkpoint_is_taken_when_the_run_says(
    cluster: Cluster, policy: CheckpointPolicy, checkpointed: list[bool], fidelity: Fidelity, runs: str
) -> None:
    """The calls since the last checkpoint are replayed; after every call, there are none."""
    name = f"policy-{policy}".replace("_", "-")
    rollout = f"{name}/g000000/r0"
    turns = (run("echo first > /work/log"), calls("echo second >> /work/log", WAITS), run("cat /work/log"))
    async with serving(played(*turns)) as url:
        handle = await start(cluster, name, url, settings=RunSettings(checkpoints=policy))
        await lose_while_waiting(cluster, rollout)
        await handle.result()
    journal = cluster.open_journal()
    keys = [call_key(rollout, call) for call in ("0000-00", "0001-00", "0001-01")]
    entries = [await journal.read_required(key, CallEntry) for key in keys]
    assert [entry.checkpoint is not None for entry in entries] == checkpointed
    assert (await output(cluster, rollout, "0002-00")).split() == runs.split()
    end = await read_end(journal, rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, (fidelity,))


async def test_a_turn_whose_last_call_needs_no_sandbox_is_checkpointed(cluster: Cluster) -> None:
    """The checkpoint follows the last of its calls that the sandbox was needed for."""
    rollout = "policy-todo/g000000/r0"
    terminal = [
        ScriptedCall(name="terminal", arguments={"command": command})
        for command in ("echo first > /work/log", "echo second >> /work/log")
    ]
    planned = ScriptedTurn(calls=(*terminal, ScriptedCall(name="todo", arguments={})))
    async with serving(played(planned)) as url:
        await (await start(cluster, "policy-todo", url)).result()
    journal = cluster.open_journal()
    keys = [call_key(rollout, call) for call in ("0000-00", "0000-01", "0000-02")]
    entries = [await journal.read_required(key, CallEntry) for key in keys]
    assert [entry.tool for entry in entries] == ["terminal", "terminal", "todo"]
    assert [entry.checkpoint is not None for entry in entries] == [False, True, False]
    assert [entry.manifest is not None for entry in entries] == [True, False, False]


async def test_a_diverged_rollout_is_replaced_where_the_run_keeps_none(cluster: Cluster) -> None:
    group = "not-kept/g000000"

    def policy(question: Question) -> ScriptedTurn:
        if question.turn:
            return say("Done.")
        return run("echo -n 0.25 > /work/score") if ".1/" in question.key else diverging()

    async with serving(ScriptedModel(Script(conversations=(scoring(0),)), policy)) as url:
        handle = await start(cluster, "not-kept", url, settings=RunSettings(keep_diverged=False))
        await eventually(lambda: made(cluster, f"{group}/r0", 0, "waiting"), "the last command running")
        await kill_sandbox(cluster, f"{group}/r0")
        await handle.result()
    journal = cluster.open_journal()
    entry = await journal.read_required(scored_key(group), GroupEntry)
    (sibling,) = entry.siblings
    assert (sibling.rollout, sibling.replacement_of) == (f"{group}/r0.1", f"{group}/r0")
    assert (sibling.score, sibling.losses) == (0.25, ())
    assert [repair.failure.kind for repair in entry.repairs] == ["SandboxDiverged"]
    assert await journal.read(reward_key(f"{group}/r0"), CallEntry) is None


@pytest.mark.parametrize("used_up", [False, True])
@pytest.mark.slow
async def test_losses_are_bounded_over_all_steps(cluster: Cluster, used_up: bool) -> None:
    """One more than the bound fails the rollout without a reward, unless its command had used its sandbox up."""
    name = f"bound-{used_up}".lower()
    group = f"{name}/g000000"
    rollout = f"{group}/r0"
    waits = [
        f"touch /work/waits-{number}; while [ ! -e /work/goes-{number} ]; do sleep 0.02; done"
        for number in range(MOST_LOSSES + 1)
    ]
    last = "head -c 1G /dev/zero" if used_up else waits[MOST_LOSSES]
    commands = ("echo -n 0.5 > /work/score", *waits[:MOST_LOSSES], last)
    async with serving(played(*map(run, commands))) as url:
        handle = await start(
            cluster,
            name,
            url,
            settings=RunSettings(disk_mb=40),
            overrides={"max_agent_turns": 30},
            repairs=RepairBounds(per_group=0),
        )
        result = asyncio.ensure_future(handle.result())
        for number in range(MOST_LOSSES + (not used_up)):
            await lose(cluster, rollout, number)
        if used_up:
            await result
        else:
            with pytest.raises(WorkflowFailureError):
                await result
    journal = cluster.open_journal()
    if used_up:
        end = await read_end(journal, rollout)
        assert end is not None
        assert end.summary.ending == Ending(outcome=Outcome.POLICY_KILLED, limit="disk")
        assert end.summary.score == 0.5
        return
    attempt = await journal.read_required(f"{group}/attempt/000", AttemptEntry)
    assert [failure.reason for failure in attempt.failures] == [
        f"SandboxLost: {MOST_LOSSES + 1} sandboxes were lost"
    ]
    assert await journal.read(end_key(rollout), EndEntry) is None


async def lose(cluster: Cluster, rollout: str, number: int) -> None:
    """Kill the sandbox of lease `number` at the step of that number, which ends in the next, if there is one."""
    file = f"waits-{number}"
    await eventually(lambda: made(cluster, rollout, number, file), f"step {number}")
    await kill_sandbox(cluster, rollout, number)
    if number < MOST_LOSSES:
        again = await eventually(lambda: made(cluster, rollout, number + 1, file), f"step {number} again")
        again.with_name(f"goes-{number}").touch()
