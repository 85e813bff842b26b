"""What serves a harness, and what it runs in, is killed or stands still: nothing is paid twice, and it goes on."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chaos.stage import sandbox_folder_of
from clotho.identifiers.keys import lease_key
from clotho.plugins.demo.kill_processes import kill_supervisors, programs_of_lease
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.rollouts.lease import Fidelity
from clotho.runs.rollouts import read_end
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.harness.test_harness import TURNS, long_script, script, start
from tests.workflows.holding import Holding, after_turns

pytestmark = pytest.mark.slow

SERVES = "workflows,tools"


@asynccontextmanager
async def served_by_two(cluster: Cluster, model: Holding) -> AsyncIterator[ChildProcess]:
    """The worker that serves the harness, when another one has started that may take over."""
    await cluster.start_worker("llm")
    first = await cluster.start_worker(SERVES)
    await model.held(1)
    await cluster.start_worker(SERVES)
    yield first


async def test_another_worker_takes_over_from_one_that_is_killed(private_cluster: Cluster) -> None:
    cluster, name, model = private_cluster, "harness-killed", Holding(script(), held=after_turns(1))
    async with serving(model) as url:
        handle = await start(cluster, name, url)
        async with served_by_two(cluster, model) as doomed:
            await doomed.kill()
            model.release.set()
            await handle.result()
    assert set(model.calls.requests.values()) == {1}
    end = await read_end(cluster.open_journal(), f"{name}/g000000/r0")
    assert end is not None and (end.summary.score, end.summary.turns) == (0.75, len(TURNS))
    assert end.summary.losses == ()


async def test_a_worker_that_stood_still_disturbs_nothing(private_cluster: Cluster) -> None:
    cluster, name, model = private_cluster, "harness-frozen", Holding(long_script(10), held=after_turns(1))
    async with serving(model) as url:
        handle = await start(cluster, name, url, overrides={"max_agent_turns": 50})
        async with served_by_two(cluster, model) as frozen:
            assert frozen.pid is not None
            os.killpg(frozen.pid, signal.SIGSTOP)
            try:
                model.hold(after_turns(6))
                await model.held(1)  # with the other worker
            finally:
                os.killpg(frozen.pid, signal.SIGCONT)
            model.release.set()
            await handle.result()
    assert set(model.calls.requests.values()) == {1}
    end = await read_end(cluster.open_journal(), f"{name}/g000000/r0")
    assert end is not None and (end.summary.score, end.summary.turns) == (0.5, 12)
    assert end.summary.losses == ()


async def test_a_worker_that_shuts_down_leaves_the_harness_running(private_cluster: Cluster) -> None:
    cluster, name, model = private_cluster, "harness-drained", Holding(script(), held=after_turns(1))
    async with serving(model) as url:
        handle = await start(cluster, name, url)
        async with served_by_two(cluster, model) as drained:
            drained.terminate()
            assert await drained.wait() == 0
            model.release.set()
            await handle.result()
    assert set(model.calls.requests.values()) == {1}
    end = await read_end(cluster.open_journal(), f"{name}/g000000/r0")
    assert end is not None and (end.summary.score, end.summary.turns) == (0.75, len(TURNS))
    assert end.summary.losses == ()


async def test_a_killed_supervisor_costs_no_answered_call(cluster: Cluster) -> None:
    name, model = "harness-supervisor", Holding(script(), held=after_turns(2))
    rollout = f"{name}/g000000/r0"
    async with serving(model) as url:
        handle = await start(cluster, name, url)
        await model.held(1)
        kill_supervisors(sandbox_folder_of(cluster), lease_key(rollout, 0))
        model.release.set()
        await handle.result()
    assert set(model.calls.requests.values()) == {1}
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.turns) == (0.75, len(TURNS))
    assert len(end.summary.losses) == 1


async def test_a_killed_harness_starts_anew(cluster: Cluster) -> None:
    name, model = "harness-itself", Holding(script(), held=after_turns(2))
    rollout = f"{name}/g000000/r0"
    async with serving(model) as url:
        handle = await start(cluster, name, url)
        await model.held(1)
        for pid in programs_of_lease(sandbox_folder_of(cluster), lease_key(rollout, 0), "python3"):
            os.kill(pid, signal.SIGKILL)
        model.release.set()
        await handle.result()
    assert set(model.calls.requests.values()) == {1}
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.turns) == (0.75, len(TURNS))
    assert end.summary.losses == (Fidelity.REPLAYED,)


async def test_a_killed_model_server_is_waited_for(cluster: Cluster) -> None:
    name, port = "harness-model", free_port()
    held = Holding(script(), held=after_turns(2))
    async with serving(held, port) as url:
        handle = await start(cluster, name, url)
        await held.held(1)
    model = ScriptedModel(script())
    async with serving(model, port):
        await handle.result()
    assert model.calls.completed.total() == len(TURNS) - held.calls.completed.total()
    end = await read_end(cluster.open_journal(), f"{name}/g000000/r0")
    assert end is not None and (end.summary.score, end.summary.turns) == (0.75, len(TURNS))
    assert end.summary.losses == ()
