"""Sandboxes that nothing uses while their rollouts wait are given back, and restored by the next call."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from activities.host import Host
from clotho.environment.instances import EnvironmentProcesses
from clotho.identifiers.keys import call_key, lease_key, reclaimed_prefix
from clotho.monitoring.metrics import Metrics
from clotho.processes.liveness import Presence
from clotho.rollouts.lease import LeaseEntry
from clotho.rollouts.task_queues import TaskQueues
from clotho.run_settings import RunSettings
from clotho.runs.rollouts import read_end
from clotho.temporal.states import namespace_labels, served_namespace
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.holding import Holding
from tests.workflows.losses import journalled, output
from tests.workflows.scripts import run, say

AFTER_A_CALL = rb'"role":\s*"tool"'
SCORES = run("echo $A $PWD $(cat /work/ran); echo -n 1 > /work/score")
AT_ONCE = RunSettings(terminal_lifetime=1)


async def host_of(cluster: Cluster) -> Host:
    """Another process of the host that the cluster's workers are on."""
    queue = f"{TaskQueues().sandbox.queue}-{cluster.host_name}"
    backend, environments = cluster.sandboxes(), EnvironmentProcesses()
    labels = await namespace_labels(cluster.client, cluster.store_identity)
    own, journal = f"{queue}-0", cluster.open_journal()
    presence = Presence(journal, served_namespace(cluster.client))
    return Host(cluster.client, journal, backend, environments, queue, own, Metrics(), labels, presence)


@asynccontextmanager
async def waiting(cluster: Cluster, name: str, command: str) -> AsyncIterator[None]:
    """A rollout that has run `command`, and waits for its model; at the end it goes on, and ends."""
    script = Script(conversations=(Conversation(variants=((run(command), SCORES, say("Done.")),)),))
    model = Holding(script, held=AFTER_A_CALL)
    async with serving(model) as url:
        handle = await start(cluster, name, url, settings=AT_ONCE)
        try:
            await journalled(cluster, call_key(f"{name}/g000000/r0", "0000-00"))
            yield
        finally:
            model.release.set()
            await handle.result()


async def held(cluster: Cluster, rollout: str) -> Sequence[str]:
    return [each.lease for each in await cluster.sandboxes().leases() if each.lease.startswith(f"{rollout}/")]


async def test_an_idle_sandbox_is_given_back_and_restored_by_the_next_call(cluster: Cluster) -> None:
    """It is as it was, and no loss."""
    rollout, host, journal = "idle/g000000/r0", await host_of(cluster), cluster.open_journal()

    async def reclaimed() -> bool:
        await host.idle.look()
        return await journal.keys(reclaimed_prefix(rollout)) != []

    async def gone() -> bool:
        return not await held(cluster, rollout)

    begins = "mkdir -p ~/deep && cd ~/deep && export A=5 && echo 0 > /work/ran"
    async with waiting(cluster, "idle", begins):
        await eventually(reclaimed, "the sandbox to be given back")
        await eventually(gone, "the sandbox to be gone")
    assert (await output(cluster, rollout, "0001-00")).split() == ["5", "/home/agent/deep", "0"]
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, ())
    second = await cluster.open_journal().read_required(lease_key(rollout, 1), LeaseEntry)
    assert (second.reclaimed, second.fidelity) == (1, None)


async def test_a_sandbox_where_something_runs_is_kept(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    rollout, host = "busy/g000000/r0", await host_of(cluster)
    caplog.set_level(logging.INFO, "clotho")

    async def kept() -> bool:
        await host.idle.look()
        return f"idle sandbox of {rollout} kept" in caplog.text

    begins = "export A=6; echo 0 > /work/ran; (setsid sleep 600 > /dev/null 2>&1 &)"
    async with waiting(cluster, "busy", begins):
        await eventually(kept, "the sandbox to be kept")
        assert await held(cluster, rollout) == [lease_key(rollout, 0)]
    assert (await output(cluster, rollout, "0001-00")).split() == ["6", "/work", "0"]
    assert await cluster.open_journal().keys(reclaimed_prefix(rollout)) == []
