"""Starting a run's campaign, and finding one that runs."""

from functools import partial

from temporalio.client import Client, WorkflowHandle
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from clotho.environment.code import Code
from clotho.environment.kept_code import KeptCode, ask_for_new_code
from clotho.errors import InvalidInput
from clotho.identifiers.ids import campaign_id
from clotho.identifiers.keys import campaign_request_prefix
from clotho.journal import Journal
from clotho.rollouts.campaign import CampaignGrowth, CampaignProgress, CampaignRequest
from clotho.runs.items import write_items
from clotho.runs.manifest import difference, open_run
from clotho.runs.request import RunRequest
from clotho.temporal.namespace import ensure_search_attributes, until_mapped
from clotho.temporal.search_attributes import identify
from clotho.temporal.states import ignore_unknown, is_running

WORKFLOW = "Campaign"

CampaignHandle = WorkflowHandle[object, CampaignProgress]


async def start_campaign(
    client: Client, journal: Journal, asked: RunRequest, code: Code | None = None
) -> CampaignHandle:
    """Start the run's campaign, attach to it if it is running, or start it again to do what is left.

    A campaign that is started uses `code`, if given, else its environment as workers have it.

    A campaign that runs takes up more groups, more items after its own, and another number of open groups. Raises
    InvalidInput if the run exists with other settings or items, or its campaign runs with other ones.
    """
    manifest = asked.manifest
    await ensure_search_attributes(client)
    await open_run(journal, manifest, asked.endpoint)
    groups = asked.groups
    if asked.items is not None:
        groups = min(groups, len(asked.items))
    request = CampaignRequest(
        run=manifest.run,
        environment=manifest.environment,
        groups=groups,
        group_size=manifest.group_size,
        limits=manifest.limits,
        task_queues=asked.task_queues,
        max_open_groups=asked.max_open_groups,
        repairs=asked.repairs,
        stop_after_failures=asked.stop_after_failures,
        priority=asked.priority,
    )
    requested = await journal.latest(campaign_request_prefix(manifest.run), CampaignRequest)
    # asked before the items are written: what is refused must not add any
    running = await is_running(client, campaign_id(manifest.run))
    if running and requested is not None and not requested.grows_into(request):
        raise InvalidInput(
            f"run {manifest.run} is running, with other settings ({difference(request, requested)}); "
            "give the same again, with as many groups or more, or wait for its end or cancel it first"
        )
    if asked.items is not None:
        await write_items(journal, manifest.run, asked.items)
    # after the items: whoever starts the campaign by this request finds them
    if requested != request:
        await journal.append(campaign_request_prefix(manifest.run), request)
    if running:
        growth = CampaignGrowth(groups=request.groups, max_open_groups=request.max_open_groups)
        with ignore_unknown():  # it has just ended
            await client.get_workflow_handle(campaign_id(manifest.run)).signal("grow", growth)
    else:
        await ask_for_new_code(journal, manifest.run)
        if code is not None:
            await KeptCode(journal).keep(manifest.run, code)
    # in any case: it attaches, and starts the campaign again where that ended before the signal came
    return await start_requested(client, request)


async def read_campaign_request(journal: Journal, run: str) -> CampaignRequest:
    """The run's last campaign request; raises InvalidInput for a run that was never started."""
    request = await journal.latest(campaign_request_prefix(run), CampaignRequest)
    if request is None:
        raise InvalidInput(f"run {run!r} was never started in {journal.store_identity}")
    return request


def campaign_handle(client: Client, run: str) -> CampaignHandle:
    return client.get_workflow_handle(campaign_id(run), result_type=CampaignProgress)


async def tell_campaign(client: Client, run: str) -> None:
    """Tell the campaign of a pause, for its display and the groups it starts next; turns read the store."""
    with ignore_unknown():
        await client.get_workflow_handle(campaign_id(run)).signal("refresh_pause")


async def start_requested(client: Client, request: CampaignRequest) -> CampaignHandle:
    """Start a campaign, or attach to it if it is running."""
    start = partial(
        client.start_workflow,
        WORKFLOW,
        request,
        id=campaign_id(request.run),
        task_queue=request.task_queues.campaigns,
        result_type=CampaignProgress,
        # Whatever is finished is found in the journal, so starting a finished campaign again costs nothing.
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=identify(request.run, request.environment),
        priority=Priority(priority_key=request.priority),  # that of its groups, rollouts and steps too
    )
    return await until_mapped(start)
