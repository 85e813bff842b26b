"""Two namespaces of one server on one store and host: what closes in one goes on in the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from clotho.config import TemporalSettings
from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers.ids import campaign_id
from clotho.runs.rollouts import read_end
from clotho.temporal.connection import connect
from clotho.temporal.states import namespace_labels
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import serving
from tests.cluster import Cluster, register
from tests.support import eventually, start
from tests.workflows.holding import Holding, after_turns
from tests.workflows.losses import made
from tests.workflows.scripts import run, say

RUN = "two-namespaces"
GROUP = f"{RUN}/g000000"
ROLLOUT = f"{GROUP}/r0"
LOOK_SECONDS = 0.1


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


@pytest.mark.slow
async def test_a_run_closed_in_one_namespace_keeps_its_sandboxes_in_the_other(
    private_cluster: Cluster, other: Cluster
) -> None:
    first, second = private_cluster, other
    waits = "touch /work/waiting; while [ ! -e /work/go ]; do sleep 0.05; done"
    more = "echo more >> /work/log"
    commands = (run(more), run(more), run(f"{waits}; {more}"), *[run(more)] * 3)
    last = (run("test $(wc -l < /work/log) = 6 && echo -n 1 > /work/score"), say("Done."))
    script = Script(conversations=(Conversation(variants=((*commands, *last),)),))
    model = Holding(script, held=after_turns(2))
    async with serving(model) as url:
        worker = await first.start_worker()
        await start(first, RUN, url)
        await model.held(1)
        await worker.kill()  # a cancel that a parent's end brings would still release the sandbox
        for workflow in (campaign_id(RUN), GROUP, ROLLOUT):
            await first.client.get_workflow_handle(workflow).terminate("moved to another namespace")
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
