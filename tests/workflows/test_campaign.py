"""A campaign's slots: filled while there is anything to start, over chunks of its items and long histories."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution as WorkflowExecutionName
from temporalio.api.enums.v1 import HistoryEventFilterType
from temporalio.api.enums.v1.workflow_pb2 import PENDING_ACTIVITY_STATE_STARTED
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError

from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import DYNAMIC_CONFIG, TemporalServer
from clotho.errors import InvalidInput
from clotho.identifiers.ids import campaign_id, group_id, rollout_id
from clotho.identifiers.keys import scored_key
from clotho.models.endpoint import Endpoint
from clotho.rollouts.campaign import CampaignProgress, CampaignRequest
from clotho.rollouts.item import Item
from clotho.runs.campaigns import CampaignHandle, start_requested
from clotho.runs.manifest import open_run
from clotho.runs.operations import Operations
from clotho.runs.request import run_manifest
from clotho.runs.targets import Target
from clotho.temporal.namespace import ensure_search_attributes
from clotho.temporal.states import is_running
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import serving
from tests.cluster import FAST, Cluster, cluster_in
from tests.support import ONE_FILE, eventually, start
from tests.workflows.holding import Holding
from tests.workflows.scripts import say

LONG = 60
"""Events of a history that the server calls long."""
SLOTS = 3
LOOK_AHEAD = 4


@pytest.fixture
def slow() -> Iterator[Holding]:
    """A model that holds the calls of item 0."""
    script = Script(conversations=(Conversation(variants=((say("Done."),),)),))
    model = Holding(script, held=b'"task 0"')
    yield model
    model.release.set()


@pytest.fixture(scope="module")
async def impatient(folder: Path) -> AsyncIterator[TemporalServer]:
    """A server for which histories are long early."""
    config = {**DYNAMIC_CONFIG, "limit.historyCount.suggestContinueAsNew": LONG}
    log = folder / "temporal-impatient.log"
    async with TemporalServer(await temporal_binary(), log, ui_port=None, dynamic_config=config) as server:
        yield server


@pytest.fixture
async def impatient_cluster(
    impatient: TemporalServer, folder: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Cluster]:
    name = request.node.name.replace("_", "-")[:60]
    async with cluster_in(impatient, folder / f"impatient-{name}", name) as cluster:
        await cluster.start_worker()
        yield cluster


async def begin(cluster: Cluster, run: str, url: str, groups: int) -> CampaignHandle:
    await ensure_search_attributes(cluster.client)
    manifest = run_manifest(ONE_FILE, run, "scripted", group_size=1)
    await open_run(cluster.open_journal(), manifest, Endpoint(base_url=url))
    request = CampaignRequest(
        run=run,
        environment=ONE_FILE,
        groups=groups,
        group_size=1,
        limits=manifest.limits,
        task_queues=FAST,
        max_open_groups=SLOTS,
        look_ahead=LOOK_AHEAD,
    )
    return await start_requested(cluster.client, request)


async def all_scored_but(cluster: Cluster, run: str, groups: int, *others: int) -> None:
    async def scored() -> bool:
        return all(
            (cluster.store / scored_key(group_id(run, item))).exists()
            for item in range(groups)
            if item not in others
        )

    await eventually(scored, "all groups but the slow ones scored", 300.0)


async def listed(cluster: Cluster, workflow: str) -> list[WorkflowExecution]:
    return [one async for one in cluster.client.list_workflows(f"WorkflowId = '{workflow}'")]


async def runs_of(cluster: Cluster, workflow: str) -> list[WorkflowExecution]:
    """A workflow's runs, the last first, once the visibility store shows the last as closed."""
    last = (await cluster.client.get_workflow_handle(workflow).describe()).run_id

    async def closed() -> list[WorkflowExecution] | None:
        found = await listed(cluster, workflow)
        done = all(one.status is not WorkflowExecutionStatus.RUNNING for one in found)
        return found if done and last in {one.run_id for one in found} else None

    return await eventually(closed, "all runs listed as closed")


async def test_a_slow_group_holds_no_slot_but_its_own(cluster: Cluster, slow: Holding) -> None:
    groups = 2 * LOOK_AHEAD + 1
    async with serving(slow) as url:
        handle = await begin(cluster, "slow-group", url, groups)
        await all_scored_but(cluster, "slow-group", groups, 0)

        async def one_left() -> bool:
            progress = await handle.query("progress", result_type=CampaignProgress)
            return (progress.scored, progress.running) == (groups - 1, 1)

        await eventually(one_left, "the campaign to hear of its scored groups")
        slow.release.set()
        done = await handle.result()
    assert (done.scored, done.failed, done.running) == (groups, 0, 0)


def numbered(count: int) -> tuple[Item, ...]:
    return tuple({"number": number} for number in range(count))


@pytest.mark.parametrize("given", [False, True])
async def test_items_are_added_to_a_live_run(cluster: Cluster, slow: Holding, given: bool) -> None:
    """Of its environment, and of a file; a campaign that runs takes no fewer of them."""
    run = f"added-{given}".lower()

    async def ask(groups: int) -> CampaignHandle:
        items = numbered(groups) if given else None
        return await start(cluster, run, url, groups=groups, items=items, max_open_groups=SLOTS)

    async with serving(slow) as url:
        begun = await ask(2)
        await all_scored_but(cluster, run, 2, 0)
        handle = await ask(7)
        await all_scored_but(cluster, run, 7, 0)
        with pytest.raises(InvalidInput, match=r"groups: 7 in the store, 2 now"):
            await ask(2)
        slow.release.set()
        done = await handle.result()
    assert handle.first_execution_run_id == begun.first_execution_run_id
    assert (done.groups, done.scored, done.failed) == (7, 7, 0)


async def test_a_run_that_has_ended_goes_on_with_added_items(cluster: Cluster, slow: Holding) -> None:
    slow.release.set()
    async with serving(slow) as url:
        for groups in (3, 5):
            handle = await start(cluster, "longer", url, groups=groups, items=numbered(groups))
            done = await handle.result()
    assert (done.groups, done.skipped, done.scored) == (5, 3, 2)


@pytest.mark.slow
async def test_a_campaign_continues_as_new_under_running_groups(
    impatient_cluster: Cluster, slow: Holding
) -> None:
    cluster, groups = impatient_cluster, 4 * LOOK_AHEAD
    async with serving(slow) as url:
        handle = await begin(cluster, "long", url, groups)
        await all_scored_but(cluster, "long", groups, 0)

        async def continued() -> bool:
            return len(await listed(cluster, campaign_id("long"))) > 1

        await eventually(continued, "the campaign to continue as new while a group runs")
        slow.release.set()
        done = await handle.result()
    assert (done.scored, done.failed, done.running, done.rollouts) == (groups, 0, 0, groups)
    assert set(slow.calls.requests.values()) == {1}, "no group was ended or run twice"
    campaigns = await runs_of(cluster, campaign_id("long"))
    assert max(one.history_length for one in campaigns) < 3 * LONG
    for item in range(groups):
        (only,) = await runs_of(cluster, group_id("long", item))
        assert only.status is WorkflowExecutionStatus.COMPLETED


@pytest.mark.slow
async def test_a_campaign_leaves_polls_of_its_namespace_to_others(folder: Path, slow: Holding) -> None:
    """It polled for each group, beyond what Temporal allows: refusals and new attempts took most of the server."""
    groups, most = 60, 25
    slow.hold(b'"task ')
    config = {
        **DYNAMIC_CONFIG,
        "limit.historyCount.suggestContinueAsNew": LONG,
        "frontend.namespaceCount": most,
    }
    log = folder / "temporal-few-polls.log"
    async with (
        TemporalServer(await temporal_binary(), log, ui_port=None, dynamic_config=config) as server,
        cluster_in(server, folder / "few-polls", "few-polls") as cluster,
        serving(slow) as url,
    ):
        await cluster.start_worker()
        handle = await start(cluster, "many", url, groups=groups, max_open_groups=groups)

        async def adopted_all() -> bool:
            progress = await handle.query("progress", result_type=CampaignProgress)
            now = (await cluster.client.get_workflow_handle(campaign_id("many")).describe()).raw_description
            following = [
                step for step in now.pending_activities if step.state == PENDING_ACTIVITY_STATE_STARTED
            ]
            return progress.running == groups and bool(following)

        await eventually(adopted_all, "all groups open, and adopted ones followed")
        poll = GetWorkflowExecutionHistoryRequest(
            namespace=cluster.client.namespace,
            execution=WorkflowExecutionName(workflow_id=group_id("many", 0)),
            wait_new_event=True,
            history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
        )
        ask = cluster.client.workflow_service.get_workflow_execution_history
        await asyncio.gather(*(ask(poll, timeout=timedelta(seconds=5)) for _ in range(most // 2)))
        slow.release.set()
        done = await handle.result()
    assert (done.scored, done.failed) == (groups, 0)


async def test_the_priority_of_a_run_is_that_of_all_its_workflows(cluster: Cluster, slow: Holding) -> None:
    slow.release.set()
    async with serving(slow) as url:
        await (await start(cluster, "first", url, priority=1)).result()
    for workflow in (campaign_id("first"), group_id("first", 0), rollout_id(group_id("first", 0), 0)):
        described = await cluster.client.get_workflow_handle(workflow).describe()
        assert described.raw_info.priority.priority_key == 1


@pytest.mark.parametrize("name", ["g000000", "g000000/r0", ""])
async def test_what_is_retried_has_the_priority_of_its_run(
    cluster: Cluster, slow: Holding, name: str
) -> None:
    """A group, a rollout, or the whole run."""
    run = f"urgent-{len(name)}"
    target = Target.named(f"{run}/{name}".rstrip("/"))
    operate = Operations(cluster.open_journal(), cluster.client)
    async with serving(slow) as url:
        handle = await start(cluster, run, url, priority=1)

        async def begun() -> bool:
            return await is_running(cluster.client, rollout_id(group_id(run, 0), 0))

        await eventually(begun, "the rollout to begin")
        await operate.cancel(Target.named(run))
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        slow.release.set()
        assert await operate.retry(target)
        again = cluster.client.get_workflow_handle(target.workflow)
        assert (await again.describe()).raw_info.priority.priority_key == 1
        await again.result()
    rollout = cluster.client.get_workflow_handle(rollout_id(group_id(run, 0), 0))
    assert (await rollout.describe()).raw_info.priority.priority_key == 1


@pytest.mark.slow
async def test_an_adopted_group_that_fails_is_tried_again(impatient_cluster: Cluster, slow: Holding) -> None:
    cluster, groups = impatient_cluster, 3 * LOOK_AHEAD
    async with serving(slow) as url:
        handle = await begin(cluster, "adopted", url, groups)
        await all_scored_but(cluster, "adopted", groups, 0)
        await cluster.client.get_workflow_handle(group_id("adopted", 0)).terminate("lost by a test")
        slow.release.set()
        done = await handle.result()
    assert (done.scored, done.failed) == (groups, 0)
    assert len(await runs_of(cluster, group_id("adopted", 0))) == 2


@pytest.mark.slow
async def test_a_cancel_reaches_adopted_groups_too(impatient_cluster: Cluster, slow: Holding) -> None:
    cluster, groups = impatient_cluster, 3 * LOOK_AHEAD
    async with serving(slow) as url:
        handle = await begin(cluster, "cancelled", url, groups)
        await all_scored_but(cluster, "cancelled", groups, 0)
        await Operations(cluster.open_journal(), cluster.client).cancel(Target.named("cancelled"))
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        (group,) = await runs_of(cluster, group_id("cancelled", 0))
        slow.release.set()
    assert group.status is WorkflowExecutionStatus.CANCELED
