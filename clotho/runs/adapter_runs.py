"""Runs whose items are drawn one at a time: who draws them starts their groups, and no campaign does."""

from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from clotho.identifiers.run_keys import drawn_order_prefix, drawn_prefix
from clotho.journal import Journal
from clotho.models.endpoint import Endpoint
from clotho.rollouts.group import GroupRequest
from clotho.rollouts.item import DrawnItem
from clotho.rollouts.run import AdapterRunConfig, RunManifest
from clotho.runs.manifest import open_run
from clotho.temporal.search_attributes import identify

WORKFLOW = "RolloutGroup"


async def open_drawn_run(
    journal: Journal, manifest: RunManifest, endpoint: Endpoint, order: AdapterRunConfig
) -> None:
    """As `open_run`, and keep how the groups are rolled out, for whoever starts one of them again."""
    await open_run(journal, manifest, endpoint)
    if await read_drawn_order(journal, manifest.run) != order:
        await journal.append(drawn_order_prefix(manifest.run), order)


async def read_drawn_order(journal: Journal, run: str) -> AdapterRunConfig | None:
    """None for a run whose groups a campaign starts."""
    return await journal.latest(drawn_order_prefix(run), AdapterRunConfig)


async def drawn_groups(journal: Journal, run: str) -> dict[str, int]:
    """The groups of the items drawn so far, in their order, with their items' numbers."""
    keys = await journal.keys(drawn_prefix(run))
    entries = await journal.read_many(keys, DrawnItem)
    return {
        entry.group: int(key.rpartition("/")[2])
        for key, entry in zip(keys, entries, strict=True)
        if entry is not None
    }


async def start_group(client: Client, request: GroupRequest) -> WorkflowHandle[Any, Any]:
    """Start a group, or attach to it; raises WorkflowAlreadyStartedError for one that has completed."""
    return await client.start_workflow(
        WORKFLOW,
        request,
        id=request.group,
        task_queue=request.task_queues.workflows,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=identify(request.run, request.environment),
    )
