"""Two namespaces of one server on one store and host: what closes in one goes on in the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from clotho.config import TemporalSettings
from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers.ids import campaign_id
from clotho.identifiers.keys import turn_key
from clotho.runs.rollouts import read_end
from clotho.temporal.connection import connect
from clotho.temporal.states import namespace_labels
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import serving
from tests.cluster import Cluster, register
from tests.support import eventually, start
from tests.workflows.holding import Holding, after_turns
from tests.workflows.losses import journalled, made
from tests.workflows.scripts import run, say

RUN = "two-namespaces"
GROUP = f"{RUN}/g000000"
ROLLOUT = f"{GROUP}/r0"
LOOK_SECONDS = 0.1
MORE = "echo more >> /work/log"
SCORES = (run("test $(wc -l < /work/log) = 6 && echo -n 1 > /work/score"), say("Done."))


@pytest.fixture
async def other(private_cluster: Cluster, temporal: TemporalServer) -> Cluster:
    """The private cluster's store, sandboxes and host in another namespace."""
    namespace = f"{private_cluster.client.namespace[:50]}-other"
    client = await connect(TemporalSettings(address=temporal.address, namespace=namespace))
    await register(client)
    return private_cluster.in_namespace(client)


async def test_a_cluster_is_the_same_under_each_of_its_addresses(temporal: TemporalServer) -> None:
    """Sandboxes that a worker labels are its own for another one, which reaches the server under another name."""
    port = temporal.address.rpartition(":")[2]
    clients = [
        await connect(TemporalSettings(address=f"{name}:{port}")) for name in ("127.0.0.1", "localhost")
    ]
    one, other = [await namespace_labels(client, "store") for client in clients]
    assert one.same_namespace(other)
    assert port not in one.cluster


@asynccontextmanager
async def keeper_looking(cluster: Cluster) -> AsyncIterator[None]:
    """Look at the sandboxes all the time, as a worker of the cluster does every minute."""

    async def look() -> None:
        while True:
            await reaper.look()
            await asyncio.sleep(LOOK_SECONDS)

    reaper = cluster.reaper()
    looking = asyncio.create_task(look())
    yield
    assert not looking.done(), looking
    looking.cancel()


async def close(cluster: Cluster, run: str) -> None:
    for workflow in (campaign_id(run), f"{run}/g000000", f"{run}/g000000/r0"):
        await cluster.client.get_workflow_handle(workflow).terminate("moved to another namespace")


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.slow
async def test_a_run_moves_away_from_workers_that_live(
    private_cluster: Cluster, other: Cluster, answered: bool
) -> None:
    """They give signs of life, and would never take a task of the namespace that it is in now."""
    first, second, name = private_cluster, other, f"moved-{'after' if answered else 'within'}-a-turn"
    rollout = f"{name}/g000000/r0"
    script = Script(conversations=(Conversation(variants=((*[run(MORE)] * 6, *SCORES),)),))
    model = Holding(script, held=after_turns(2))
    async with serving(model) as url:
        worker = await first.start_worker()
        await start(first, name, url)
        await model.held(1)
        await close(first, name)
        model.hold(after_turns(2))
        if answered:
            model.release.set()
            await journalled(first, turn_key(rollout, 2))
        await second.start_worker()
        handle = await start(second, name, url)
        if not answered:
            await model.held(1)
            model.release.set()
        await handle.result()
        assert worker.running
    end = await read_end(second.open_journal(), rollout)
    assert end is not None and (end.summary.turns, end.summary.score) == (8, 1.0)


@pytest.mark.slow
async def test_a_run_closed_in_one_namespace_keeps_its_sandboxes_in_the_other(
    private_cluster: Cluster, other: Cluster
) -> None:
    first, second = private_cluster, other
    waits = "touch /work/waiting; while [ ! -e /work/go ]; do sleep 0.05; done"
    commands = (run(MORE), run(MORE), run(f"{waits}; {MORE}"), *[run(MORE)] * 3)
    script = Script(conversations=(Conversation(variants=((*commands, *SCORES),)),))
    model = Holding(script, held=after_turns(2))
    async with serving(model) as url:
        worker = await first.start_worker()
        await start(first, RUN, url)
        await model.held(1)
        await worker.kill()  # a cancel that a parent's end brings would still release the sandbox
        await close(first, RUN)
        await second.start_worker()
        model.release.set()
        handle = await start(second, RUN, url)
        waiting = await eventually(lambda: made(second, ROLLOUT, 0, "waiting"), "the third command")

        async def taken_over() -> bool:
            leases = await second.sandboxes().leases()
            return any(held.labels and held.labels.namespace == second.client.namespace for held in leases)

        await eventually(taken_over, "the rollout at work in the other namespace")
        async with keeper_looking(first):
            waiting.with_name("go").touch()
            await handle.result()
    end = await read_end(second.open_journal(), ROLLOUT)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, ())
    assert await second.sandboxes().leases() == []
