"""Starting a run's campaign, and finding one that runs."""

from temporalio.client import Client, WorkflowHandle
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from clotho.entries import Endpoint, Item, RunManifest
from clotho.identifiers import campaign_id
from clotho.journal import Journal
from clotho.records import CampaignProgress, CampaignRequest, Queues, Record
from clotho.runs import open_run, write_items
from clotho.search_attributes import ENVIRONMENT, RUN

WORKFLOW = "Campaign"


class RunOrder(Record):
    """A run as a user asks for it."""

    manifest: RunManifest
    endpoint: Endpoint
    groups: int
    max_open_groups: int
    items: tuple[Item, ...] | None = None
    """None: the environment's own."""
    queues: Queues = Queues()


CampaignHandle = WorkflowHandle[object, CampaignProgress]


async def start_campaign(client: Client, journal: Journal, order: RunOrder) -> CampaignHandle:
    """Start the run's campaign, attach to it if it is running, or start it again to do what is left.

    Raises InvalidInput if the run exists with other settings or items.
    """
    manifest = order.manifest
    await open_run(journal, manifest, order.endpoint)
    groups = order.groups
    if order.items is not None:
        await write_items(journal, manifest.run, order.items)
        groups = min(groups, len(order.items))
    request = CampaignRequest(
        run=manifest.run,
        environment=manifest.environment,
        groups=groups,
        group_size=manifest.group_size,
        limits=manifest.limits,
        queues=order.queues,
        max_open_groups=order.max_open_groups,
    )
    return await client.start_workflow(
        WORKFLOW,
        request,
        id=campaign_id(manifest.run),
        task_queue=order.queues.workflows,
        result_type=CampaignProgress,
        # Whatever is finished is found in the journal, so starting a finished campaign again costs nothing.
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(SearchAttributeKey.for_keyword(RUN), manifest.run),
                SearchAttributePair(SearchAttributeKey.for_keyword(ENVIRONMENT), manifest.environment),
            ]
        ),
    )
