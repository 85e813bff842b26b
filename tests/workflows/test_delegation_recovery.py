"""Workers that die while tasks are delegated: parents wait for the same children, nothing is done twice."""

import asyncio

import pytest

from clotho.run_settings import RunSettings
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.environments.delegating import NAME, delegates, script
from tests.support import PATIENCE_SECONDS, eventually
from tests.workflows.losses import WAITS, made, output
from tests.workflows.scripts import run, say
from tests.workflows.test_delegation import SCORES, ended


@pytest.mark.slow
async def test_a_parent_whose_worker_dies_waits_for_the_same_child(private_cluster: Cluster) -> None:
    cluster, child = private_cluster, "died/g000000/r0~0000-00"
    waits = (run(f"echo run >> /work/runs; {WAITS}; cat /work/runs"), say("Waited."))
    model = ScriptedModel(script(delegates("wait"), SCORES, say("Done."), wait=waits))
    async with serving(model) as url:
        worker = await cluster.start_worker()
        handle = await cluster.start("died", url, environment=NAME)
        waiting = await eventually(lambda: made(cluster, child, 0, "waiting"), "the child's command")
        began = (await cluster.client.get_workflow_handle(child).describe()).run_id
        await worker.kill()
        await cluster.start_worker()
        waiting.with_name("go").touch()
        await handle.result()
    assert (await cluster.client.get_workflow_handle(child).describe()).run_id == began
    assert await output(cluster, child, "0000-00") == "run"
    assert (await ended(cluster, "died/g000000/r0")).score == 1.0
    assert set(model.calls.requests.values()) == {1}


DEATHS = (
    "journal.write[*/delegation/*]",
    "journal.write[*~0000-00/call/0000-00]",
    "end.written[*~0000-00/end]",
    "call.made[*/r0/call/0000-00]",
    "call.journalled[*/r0/call/0000-00]",
)
"""The steps of a delegated task, in the order in which workers reach them."""


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["own", "shared"])
async def test_a_worker_that_dies_at_any_step_does_nothing_twice(
    private_cluster: Cluster, sandbox: str
) -> None:
    cluster, rollout = private_cluster, "deaths/g000000/r0"
    works = (run("echo run >> /work/runs; cat /work/runs"), say("Done."))
    model = ScriptedModel(script(delegates("work"), SCORES, say("Done."), work=works))
    settings = RunSettings(delegation={"sandbox": sandbox})
    async with serving(model) as url:
        handle = await cluster.start("deaths", url, environment=NAME, settings=settings)
        for point in DEATHS:
            worker = await cluster.start_worker(CLOTHO_FAIL=f"{point}:kill")
            await asyncio.wait_for(worker.wait(), PATIENCE_SECONDS)
        await cluster.start_worker()
        await handle.result()
    assert await output(cluster, f"{rollout}~0000-00", "0000-00") == "run"
    parent = await ended(cluster, rollout)
    assert (parent.score, parent.losses, parent.tool_calls) == (1.0, (), 2)
    assert set(model.calls.requests.values()) == {1}
