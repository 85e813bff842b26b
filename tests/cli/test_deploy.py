"""Versions of workers: what is said where one isn't current, and the command that makes it so."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import WorkerDeploymentVersionStatus

from clotho.cli.deployment_notices import DRAINED, DRAINING, NEW, RAMPING, deployment_notices, notices_of
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import DYNAMIC_CONFIG, TemporalServer
from clotho.errors import Unavailable
from clotho.rollouts.task_queues import TaskQueues
from clotho.temporal.deployments import Deployment, make_current
from clotho.testing.script import Script
from clotho.testing.scripted_model import serving
from tests.cli.command import CLOTHO, Finished, Terminal, clotho
from tests.cluster import Cluster, cluster_in
from tests.support import ONE_FILE, PATIENCE_SECONDS, eventually, start, version_of
from tests.workflows.holding import LATER_TURNS, Holding
from tests.workflows.scripts import scoring

SOON = {
    "matching.wv.VersionDrainageStatusRefreshInterval": 1,
    "matching.wv.VersionDrainageStatusVisibilityGracePeriod": 1,
}
"""Seconds after which Temporal looks whether a version is drained: 3 minutes otherwise."""
CURRENT = WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_CURRENT
INACTIVE = NEW[0]
NONE_IS_CURRENT = "deployment clotho has no current version: the workers of build a get no new work"

SAID: dict[str, tuple[Deployment, list[str]]] = {
    "current": (Deployment("d", "a", {"a": CURRENT}, frozenset("a")), []),
    "unused": (Deployment("d", None, {"a": INACTIVE}, frozenset()), []),
    "none current": (
        Deployment("clotho", None, {"a": INACTIVE}, frozenset("a")),
        [f"! {NONE_IS_CURRENT}: run `clotho deploy a`"],
    ),
    "none current, two versions": (
        Deployment("d", None, {"b": INACTIVE, "a": INACTIVE}, frozenset("ab")),
        [
            "! deployment d has no current version: the workers of builds b, a get no new work: "
            "run `clotho deploy a`"
        ],
    ),
    "none current beside workers without a build id": (
        Deployment("clotho", None, {"a": INACTIVE}, frozenset("a"), polled_unversioned=True),
        [f"{NONE_IS_CURRENT}: run `clotho deploy a`"],
    ),
    "a new one": (
        Deployment("d", "a", {"a": CURRENT, "b": INACTIVE}, frozenset("ab")),
        ["the workers of build b aren't current, current is a: run `clotho deploy b`"],
    ),
    "a new one gone": (Deployment("d", "a", {"a": CURRENT, "b": INACTIVE}, frozenset("a")), []),
    "a ramping one": (Deployment("d", "a", {"a": CURRENT, "b": RAMPING}, frozenset("ab")), []),
    "the current one's workers gone": (
        Deployment("d", "a", {"a": CURRENT, "b": INACTIVE}, frozenset("b")),
        [
            "! build a is current and none of its workers polls: new work waits: "
            "start its workers, or run `clotho deploy b`"
        ],
    ),
    "only workers without a build id": (
        Deployment("d", "a", {"a": CURRENT}, frozenset(), polled_unversioned=True),
        ["! build a is current and none of its workers polls: new work waits: start its workers"],
    ),
    "draining": (
        Deployment("d", "b", {"a": DRAINING, "b": CURRENT}, frozenset("ab")),
        ["build a is draining: what its workers began is open"],
    ),
    "draining without workers": (
        Deployment("d", "b", {"a": DRAINING, "b": CURRENT}, frozenset("b")),
        [
            "build a is draining, and none of its workers polls: "
            "start one, unless what it began has ended in the last minutes"
        ],
    ),
    "drained": (
        Deployment("d", "b", {"a": DRAINED, "b": CURRENT}, frozenset("ab")),
        ["build a is drained: its workers can be stopped"],
    ),
    "drained and gone": (Deployment("d", "b", {"a": DRAINED, "b": CURRENT}, frozenset("b")), []),
}
"""What is said of a deployment; what stops runs is marked."""


@pytest.mark.parametrize(("deployment", "said"), SAID.values(), ids=SAID)
def test_what_is_said_of_a_deployment(deployment: Deployment, said: list[str]) -> None:
    notices = notices_of(deployment)
    assert [f"{'! ' if notice.stops_runs else ''}{notice.line}" for notice in notices] == said


async def test_nothing_is_said_of_workers_without_a_build_id(cluster: Cluster) -> None:
    assert await deployment_notices(cluster.client) == []


async def test_a_version_without_workers_is_refused(cluster: Cluster) -> None:
    with pytest.raises(
        Unavailable, match=r"no worker of build x of deployment clotho polls at 127\.0\.0\.1:"
    ):
        await make_current(cluster.client, TaskQueues().workflows, "clotho", "x", seconds=0)


@pytest.mark.slow
async def test_a_deployment_that_many_change_at_once_is_changed_by_all(private_cluster: Cluster) -> None:
    """Temporal refuses those beyond the first ten."""
    cluster, versions = private_cluster, ("a", "b")
    for build_id in versions:
        await cluster.start_worker("workflows", CLOTHO_WORKER__BUILD_ID=build_id)
    queue = TaskQueues().workflows
    for build_id in versions:  # both are known
        await make_current(cluster.client, queue, "clotho", build_id)
    changes = (make_current(cluster.client, queue, "clotho", build_id) for build_id in versions * 15)
    assert set(await asyncio.gather(*changes)) == set(versions)


async def test_a_version_has_to_be_named(cluster: Cluster) -> None:
    refused = await clotho("deploy", "--temporal", cluster.address)
    assert refused.status == 1
    assert refused.complaint.startswith("clotho: which version? give its build id, or set worker.build_id")


@pytest.fixture
async def own_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """The default namespace of a server that soon sees that a version is drained."""
    binary, config = await temporal_binary(), DYNAMIC_CONFIG | SOON
    server = TemporalServer(binary, folder / "deployed.log", ui_port=None, dynamic_config=config)
    await server.start(PATIENCE_SECONDS)
    async with cluster_in(server, folder / "deployed", "default") as cluster:
        yield cluster
    await server.stop()


async def at(cluster: Cluster, *words: str, **variables: str) -> Finished:
    environment = cluster.host_variables | variables
    return await clotho(*words, "--temporal", cluster.address, environment=environment)


async def until_said(cluster: Cluster, line: str) -> None:
    async def said() -> bool:
        return line in [notice.line for notice in await deployment_notices(cluster.client)]

    await eventually(said, line)


async def until_doctor_says(cluster: Cluster, lines: str) -> Finished:
    """The doctor's words once `lines` are in them: it waits seconds for Temporal, which may take more."""

    async def said() -> Finished | None:
        examined = await at(cluster, "doctor", "--store", cluster.store_location)
        return examined if lines in examined.output else None

    return await eventually(said, lines)


@pytest.mark.slow
async def test_a_run_waits_for_a_current_version_and_ends_on_the_one_that_it_began_with(
    own_cluster: Cluster,
) -> None:
    cluster, store = own_cluster, ("--store", own_cluster.store_location)
    model = Holding(Script(conversations=(scoring(1.0),)), held=LATER_TURNS)
    async with serving(model) as url:
        await cluster.start_worker(CLOTHO_WORKER__BUILD_ID="a")
        order = ("run", ONE_FILE, "--run", "first", "--model", url, "--groups", "1", "--group-size", "1")
        first = Terminal(CLOTHO, *order, *store, "--temporal", cluster.address, term="dumb")
        try:
            await first.until(f"{NONE_IS_CURRENT}: run `clotho deploy a`")
            examined = await until_doctor_says(cluster, f"! {NONE_IS_CURRENT}\n    → run `clotho deploy a`\n")
            assert examined.status == 1
            detached = await at(cluster, *order, "--detach", *store)
            assert f"{NONE_IS_CURRENT}: run `clotho deploy a`\n" in detached.output
            shown = await at(cluster, "status", *store)
            assert f"{NONE_IS_CURRENT}: run `clotho deploy a`\n" in shown.output
            shown = await at(cluster, "status", "first", *store)
            assert f"{NONE_IS_CURRENT}: run `clotho deploy a`\n" in shown.output

            deployed = await at(cluster, "deploy", CLOTHO_WORKER__BUILD_ID="a")
            assert deployed.output == "deployment clotho: build a is current; none was before\n"
            await model.held(1)
            deployed = await at(cluster, "deploy", "a")
            assert deployed.output == "deployment clotho: build a is current already\n"
            assert await deployment_notices(cluster.client) == []

            await cluster.start_worker(CLOTHO_WORKER__BUILD_ID="b")
            await until_said(
                cluster, "the workers of build b aren't current, current is a: run `clotho deploy b`"
            )
            deployed = await at(cluster, "deploy", "b")
            assert deployed.output.splitlines() == [
                "deployment clotho: build b is current; before it was a",
                "what began with a ends with it: "
                "keep the workers of a until `clotho doctor` says that it is drained",
            ]
            await until_said(cluster, "build a is draining: what its workers began is open")
            second = await start(cluster, "second", url)
            await model.held(2)
            model.release.set()
            await second.result()
            assert await first.ended() == 0
        finally:
            first.close()
    assert await version_of(cluster, "first/g000000/r0") == "a"
    assert await version_of(cluster, "second/g000000/r0") == "b"
    assert set(model.calls.requests.values()) == {1}
    drained = "build a is drained: its workers can be stopped"
    await until_said(cluster, drained)
    await until_doctor_says(cluster, f"  {drained}\n")
