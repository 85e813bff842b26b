"""Two hosts with sandboxes of their own: one dies and comes back, one is restarted."""

from clotho.entries.rollout import LeaseEntry
from clotho.identifiers import call_key, lease_key
from clotho.processes.child import ChildProcess
from clotho.runs.rollouts import read_end
from clotho.testing.cluster import Cluster
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.support import eventually, start
from tests.workflows.scripts import run, say


async def host(cluster: Cluster, name: str) -> ChildProcess:
    root = cluster.folder / f"host-{name}"
    return await cluster.start_worker(CLOTHO_HOST=name, CLOTHO_SANDBOX__ROOT=str(root))


def sandboxes_of(cluster: Cluster, name: str) -> int:
    return len(list((cluster.folder / f"host-{name}").glob("*/sandboxes/*")))


async def test_the_rollouts_of_a_dead_host_go_on_at_another(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, "moved-host/g000000/r0"
    turns = (run("cd /tmp && echo kept > kept"), *[run("sleep 0.2; cat /tmp/kept")] * 30)
    last = (run("cat kept && echo -n 1 > /work/score"), say("Done."))
    model = ScriptedModel(Script(conversations=(Conversation(variants=((*turns, *last),)),), latency=0.2))
    async with serving(model) as url:
        first = await host(cluster, "first")
        handle = await start(cluster, "moved-host", url, overrides={"max_agent_turns": 50})

        async def under_way() -> bool:
            return (cluster.store / call_key(rollout, "0001-00")).exists()

        await eventually(under_way, "a second call done")
        second = await host(cluster, "second")

        async def two_are_there() -> bool:
            return len({key.split("/")[1] for key in await cluster.open_journal().keys("~present/")}) >= 4

        await eventually(two_are_there, "both hosts present")
        await first.kill()
        await handle.result()
        journal = cluster.open_journal()
        end = await read_end(journal, rollout)
        assert end is not None and end.summary.score == 1.0
        assert model.calls.paid_twice == {}
        lease = await journal.require(lease_key(rollout, 1), LeaseEntry)
        assert lease.queue == "clotho-sandbox-second"
        assert sandboxes_of(cluster, "first") == 1, "nobody cleans up at a host that is dead"
        await host(cluster, "first")

        async def cleaned() -> bool:
            return sandboxes_of(cluster, "first") == 0

        await eventually(cleaned, "the host that came back cleaned up")
        assert second.running


async def test_a_rolling_restart_moves_nobody(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, "restarted/g000000/r0"
    turns = (*[run("sleep 0.2")] * 25, run("echo -n 1 > /work/score"), say("Done."))
    model = ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),), latency=0.2))
    async with serving(model) as url:
        first = await host(cluster, "first")
        handle = await start(cluster, "restarted", url, overrides={"max_agent_turns": 40})

        async def under_way() -> bool:
            return (cluster.store / call_key(rollout, "0001-00")).exists()

        await eventually(under_way, "a second call done")
        await host(cluster, "second")
        await first.stop(20)
        await host(cluster, "first")
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, ())
