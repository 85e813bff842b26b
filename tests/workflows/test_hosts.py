"""Two hosts with sandboxes of their own: one dies and comes back, one is restarted."""

import os
from pathlib import Path

import pytest

from clotho.identifiers.keys import call_key, lease_key
from clotho.processes.child import ChildProcess
from clotho.rollouts.lease import Fidelity, LeaseEntry
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually, start
from tests.workflows.holding import Holding, after_turns
from tests.workflows.losses import kill_sandbox, made
from tests.workflows.scripts import run, say

RELEASE = Path("/etc/os-release").resolve()


async def host(
    cluster: Cluster, name: str, roles: str = "workflows,tools,llm", **settings: str
) -> ChildProcess:
    root = cluster.folder / f"host-{name}"
    return await cluster.start_worker(roles, CLOTHO_HOST=name, CLOTHO_SANDBOX__ROOT=str(root), **settings)


def sandbox_queue(name: str) -> str:
    return f"{TaskQueues().sandbox.queue}-{name}"


def sandboxes_of(cluster: Cluster, name: str) -> int:
    return len(list((cluster.folder / f"host-{name}").glob("*/sandboxes/*")))


@pytest.mark.slow
async def test_the_rollouts_of_a_dead_host_go_on_at_another(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, "moved-host/g000000/r0"
    turns = (run("cd /tmp && echo kept > kept"), *[run("cat /tmp/kept")] * 3)
    last = (run("cat kept && echo -n 1 > /work/score"), say("Done."))
    script = Script(conversations=(Conversation(variants=((*turns, *last),)),))
    model = Holding(script, held=after_turns(2))
    async with serving(model) as url:
        first = await host(cluster, "first")
        handle = await start(cluster, "moved-host", url)
        await model.held(1)
        second = await host(cluster, "second")

        async def two_are_there() -> bool:
            return len({key.split("/")[1] for key in await cluster.open_journal().keys("~present/")}) >= 4

        await eventually(two_are_there, "both hosts present")
        await first.kill()
        model.release.set()
        await handle.result()
        journal = cluster.open_journal()
        end = await read_end(journal, rollout)
        assert end is not None and end.summary.score == 1.0
        assert model.calls.paid_twice == {}
        lease = await journal.read_required(lease_key(rollout, 1), LeaseEntry)
        assert lease.queue == "clotho-sandbox-second"
        assert sandboxes_of(cluster, "first") == 1, "nobody cleans up at a host that is dead"
        await host(cluster, "first")

        async def cleaned() -> bool:
            return sandboxes_of(cluster, "first") == 0

        await eventually(cleaned, "the host that came back cleaned up")
        assert second.running


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_a_host_with_other_programs_restores_less_than_exactly(private_cluster: Cluster) -> None:
    """The second worker sees another release of the system: as on a host that was set up later."""
    cluster, rollout = private_cluster, "other-system/g000000/r0"
    release = cluster.folder / "os-release"
    release.write_text(f"{RELEASE.read_text()}VARIANT=another\n")
    waits = f"touch /work/waiting; until grep -q VARIANT=another {RELEASE}; do sleep 0.1; done"
    turns = (run("echo -n 1 > /work/score"), run(waits), say("Done."))
    script = Script(conversations=(Conversation(variants=(turns,)),))
    async with serving(ScriptedModel(script)) as url:
        first = await cluster.start_worker()
        handle = await start(cluster, "other-system", url)
        await eventually(lambda: made(cluster, rollout, 0, "waiting"), "the command waiting")
        await first.kill()
        await kill_sandbox(cluster, rollout)
        mounted = f"mount --bind {release} {RELEASE}"
        await cluster.start_worker(under=("unshare", "--mount", "sh", "-c", f'{mounted} && exec "$@"', "sh"))
        await handle.result()
    journal = cluster.open_journal()
    end = await read_end(journal, rollout)
    assert end is not None
    assert (end.summary.score, end.summary.losses) == (1.0, (Fidelity.RESTORED,))
    systems = [
        (await journal.read_required(lease_key(rollout, number), LeaseEntry)).system for number in range(2)
    ]
    assert systems[0] != systems[1]


@pytest.mark.slow
async def test_a_host_too_busy_to_look_at_a_lease_leaves_the_call_to_the_host_of_the_sandbox(
    private_cluster: Cluster,
) -> None:
    cluster, rollout = private_cluster, "busy-host/g000000/r0"
    turns = (run("echo -n 1 > /work/score"), run("cat /work/score"), say("Done."))
    model = Holding(Script(conversations=(Conversation(variants=(turns,)),)), held=after_turns(1))
    fail = cluster.folder / "fail"
    fail.mkdir()
    (fail / "lease.sought").touch()
    async with serving(model) as url:
        first = await host(cluster, "first")
        handle = await start(cluster, "busy-host", url)
        await model.held(1)
        await host(cluster, "second", CLOTHO_FAIL="lease.sought:delay=3", CLOTHO_FAIL_FOLDER=str(fail))
        async with cluster.present(sandbox_queue("first")):
            await first.kill()
            await host(cluster, "first", roles="tools")
            model.release.set()
            await handle.result()
    journal = cluster.open_journal()
    end = await read_end(journal, rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, ())
    lease = await journal.read_required(lease_key(rollout, 0), LeaseEntry)
    assert lease.queue == sandbox_queue("first")


@pytest.mark.slow
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
        async with cluster.present(sandbox_queue("first")):
            await first.stop(PATIENCE_SECONDS)
            await host(cluster, "first")
            await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, ())
