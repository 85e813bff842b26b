"""Several processes that call models: a rollout stays with one, and leaves it only when it is gone."""

import os
import signal
from pathlib import Path

import pytest

from clotho.identifiers.rollout_keys import turn_key
from clotho.processes.liveness import Liveness, heartbeat_age
from clotho.processes.process_slots import ProcessSlot
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.scripts import run, say


def script(latency: float, commands: int = 2) -> Script:
    turns = (*[run("true")] * commands, say("Done."))
    return Script(conversations=(Conversation(variants=(turns,)),), latency=latency)


@pytest.mark.slow
async def test_a_stopped_process_pays_for_no_call_twice(private_cluster: Cluster) -> None:
    """One of two is stopped in the middle of its calls for longer than heartbeats may be silent."""
    cluster = private_cluster
    model = ScriptedModel(script(latency=4.0))
    async with serving(model) as url:
        await cluster.start_worker("workflows,tools")
        for _ in range(2):
            await cluster.start_worker("llm")
        handle = await start(cluster, "stopped", url, groups=4, group_size=2)

        async def asked() -> bool:
            return len(model.calls.requests) >= 8

        await eventually(asked, "all first turns asked for")
        described = await cluster.client.get_workflow_handle("stopped/g000000/r0").describe()
        [call] = described.raw_description.pending_activities
        at_work = int(call.last_worker_identity.partition("@")[0])  # nobody knows which of the two it is
        os.kill(at_work, signal.SIGSTOP)

        async def retried() -> bool:
            rollouts = [f"stopped/g00000{group}/r{sibling}" for group in range(4) for sibling in range(2)]
            described = [await cluster.client.get_workflow_handle(name).describe() for name in rollouts]
            return any(
                call.attempt > 1 for one in described for call in one.raw_description.pending_activities
            )

        await eventually(retried, "a call of the stopped process tried again")
        os.kill(at_work, signal.SIGCONT)
        progress = await handle.result()
    assert progress.rollouts == 8
    assert model.calls.paid_twice == {}
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.slow
async def test_the_rollouts_of_a_dead_process_move_to_another(private_cluster: Cluster) -> None:
    cluster = private_cluster
    model = ScriptedModel(script(latency=0.5, commands=20))
    async with serving(model) as url:
        await cluster.start_worker("workflows,tools")
        doomed = await cluster.start_worker("llm")
        handle = await start(cluster, "moved", url, overrides={"max_agent_turns": 30})

        async def sampled() -> bool:
            return (cluster.store / turn_key("moved/g000000/r0", 0)).exists()

        await eventually(sampled, "a first turn")
        survivor = await cluster.start_worker("llm")

        async def seated() -> bool:
            return len(await cluster.open_journal().keys("~present/")) >= 3

        await eventually(seated, "both processes present")
        await doomed.kill()
        paid = set(model.calls.completed)
        await handle.result()
        assert survivor.running
    assert 0 < len(paid) < 21, "it must die on the way"
    assert model.calls.paid_twice == {}


async def test_presence_is_seen_and_its_signs_do_not_pile_up(private_cluster: Cluster) -> None:
    journal = private_cluster.open_journal()
    assert await heartbeat_age(journal, "somebody") == float("inf")
    presence = Liveness(journal, "somebody")
    for _ in range(4):
        await presence.beat()
    assert await heartbeat_age(journal, "somebody") < 5
    assert len(await journal.keys("~present/somebody/")) <= 2


def test_seats_are_taken_once_and_freed_by_death(tmp_path: Path) -> None:
    folder = tmp_path / "seats"
    first, second = ProcessSlot(folder), ProcessSlot(folder)
    assert (first.number, second.number) == (0, 1)
    child = os.fork()
    if child == 0:
        ProcessSlot(folder)
        os._exit(0)
    os.waitpid(child, 0)
    assert ProcessSlot(folder).number == 2
