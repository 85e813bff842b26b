"""Runs of the adapter, which takes items one at a time and starts their groups itself, without a campaign."""

from functools import partial
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from clotho.identifiers.keys import adapter_config_prefix, adapter_items_prefix
from clotho.journal import Journal
from clotho.models.endpoint import Endpoint
from clotho.rollouts.group import GroupRequest
from clotho.rollouts.item import AdapterItem
from clotho.rollouts.rollout import RolloutRequest
from clotho.rollouts.run import AdapterRunConfig, RunManifest
from clotho.runs.manifest import open_run
from clotho.temporal.namespace import until_mapped
from clotho.temporal.search_attributes import identify


async def open_adapter_run(
    journal: Journal, manifest: RunManifest, endpoint: Endpoint, config: AdapterRunConfig
) -> None:
    """Like `open_run`, and keep the configuration that operators need to start one of its groups again."""
    await open_run(journal, manifest, endpoint)
    # after open_run, which refuses other settings for a run that is there
    if await read_adapter_config(journal, manifest.run) != config:
        await journal.append(adapter_config_prefix(manifest.run), config)


async def read_adapter_config(journal: Journal, run: str) -> AdapterRunConfig | None:
    """The adapter's configuration; None for a run of a campaign."""
    return await journal.latest(adapter_config_prefix(run), AdapterRunConfig)


async def adapter_groups(journal: Journal, run: str) -> dict[str, int]:
    """Group -> item number, of the items taken so far, in order."""
    keys = await journal.keys(adapter_items_prefix(run))
    entries = await journal.read_many(keys, AdapterItem)
    return {
        entry.group: int(key.rpartition("/")[2])
        for key, entry in zip(keys, entries, strict=True)
        if entry is not None
    }


async def start_work(
    client: Client, request: GroupRequest | RolloutRequest, priority: int | None = None
) -> WorkflowHandle[Any, Any]:
    """Start a group or rollout, or attach to it; raises WorkflowAlreadyStartedError for one that has completed.

    `priority` is the run's: work without a parent can't inherit it.
    """
    if isinstance(request, GroupRequest):
        kind, name = "RolloutGroup", request.group
    else:
        kind, name = "Rollout", request.rollout
    start = partial(
        client.start_workflow,
        kind,
        request,
        id=name,
        task_queue=request.task_queues.workflows,
        task_timeout=request.task_queues.workflow_task_timeout,
        # what failed or was cancelled starts again; what has completed raises: its result is in the journal
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=identify(request.run, request.environment),
        priority=Priority(priority_key=priority),
    )
    return await until_mapped(start)
