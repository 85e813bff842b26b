"""The table of `clotho status`: the progress of each run, and whether workers serve it."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.table import Table
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from clotho.cli.follow import current_progress
from clotho.cli.terminal import sanitized_text
from clotho.cli.waiting import is_polled, unserved
from clotho.identifiers.ids import campaign_id
from clotho.journal import Journal
from clotho.processes.liveness import LIVENESS_SECONDS, heartbeat_ages
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.adapter_runs import adapter_groups, read_adapter_config
from clotho.runs.groups import is_large, scored_keys, target_groups
from clotho.runs.manifest import list_runs, read_manifest
from clotho.runs.pauses import reason_for
from clotho.temporal.search_attributes import work_of
from clotho.temporal.states import describe, verifying_seconds

SERVER_SECONDS = 5.0
NOT_KNOWN = "-"


async def runs_table(journal: Journal, client: Client | None) -> Table:
    """A row for each run; without a `client` their states are unknown."""
    table = Table("run", "state", "scored groups", "group size", "environment", "model")
    for name in await list_runs(journal):
        manifest = await read_manifest(journal, name)
        scored, target = await scored_count(journal, client, name), await target_groups(journal, name)
        shown = NOT_KNOWN if scored is None else str(scored)
        state = await run_state(journal, client, name, scored, target)
        if state == NOT_KNOWN:
            client = None  # a server that doesn't answer is waited for once, not for every run
        table.add_row(
            name,
            state,
            f"{shown}/{target}" if target is not None else shown,
            str(manifest.group_size),
            sanitized_text(manifest.environment),
            sanitized_text(manifest.model),
        )
    return table


async def scored_count(journal: Journal, client: Client | None, run: str) -> int | None:
    """The number of the run's scored groups; of a large run what its campaign says, None if it doesn't answer."""
    if not await is_large(journal, run):
        return len(await scored_keys(journal, run))
    progress = await current_progress(client.get_workflow_handle(campaign_id(run))) if client else None
    return progress.scored + progress.skipped if progress is not None else None


async def run_state(
    journal: Journal, client: Client | None, run: str, scored: int | None, target: int | None
) -> str:
    """One word."""
    paused = await reason_for(journal, run) is not None
    if target is not None and scored is not None and scored >= target:
        return "scored"
    if client is None:
        return "paused" if paused else NOT_KNOWN
    try:
        async with asyncio.timeout(SERVER_SECONDS):  # the client itself tries again for ever
            state = await _drawn_state(journal, client, run) or await _campaign_state(client, run)
    except (RPCError, TimeoutError):
        return NOT_KNOWN
    return "paused" if paused and state == "running" else state


async def _drawn_state(journal: Journal, client: Client, run: str) -> str | None:
    """The state of a run that an adapter drives; None for one of a campaign."""
    if await read_adapter_config(journal, run) is None:
        return None
    running = await client.count_workflows(f"{work_of(run)} AND ExecutionStatus = 'Running'")
    return "running" if running.count else f"{len(await adapter_groups(journal, run))} drawn"


async def _campaign_state(client: Client, run: str) -> str:
    if (described := await describe(client, campaign_id(run))) is None:
        return "not in this Temporal"
    ended = {
        WorkflowExecutionStatus.RUNNING: "running",
        WorkflowExecutionStatus.COMPLETED: "incomplete",
        WorkflowExecutionStatus.CANCELED: "cancelled",
    }
    status = described.status
    return ended.get(status, status.name.lower()) if status is not None else NOT_KNOWN


async def workers_text(journal: Journal, client: Client | None) -> str:
    """Whether workers live that serve this store, and the Temporal server that is asked."""
    present = [
        name
        for name, heartbeat_age in (await heartbeat_ages(journal)).items()
        if heartbeat_age < LIVENESS_SECONDS
    ]
    # A host's own heartbeat comes from its processes, which are named after it.
    alive = [name for name in present if not any(each.startswith(f"{name}-") for each in present)]
    if not alive:
        return "workers: none is alive for this store; start `clotho dev` or `clotho worker`"
    if client is None:
        return f"workers: {len(alive)} alive for this store"
    place = f"{client.service_client.config.target_host}, namespace {client.namespace}"
    try:
        async with asyncio.timeout(SERVER_SECONDS):
            here = await _polled(client, alive)
            missing = await unserved(client, TaskQueues())
    except (RPCError, TimeoutError):
        return f"workers: {len(alive)} alive for this store; {place} doesn't answer"
    if not here:
        return (
            f"workers: {len(alive)} alive for this store, none of which serves the Temporal server at {place}; "
            "give theirs with --temporal"
        )
    lacking = f"; no worker serves {', '.join(missing)}" if missing else ""
    return f"workers: {len(here)} alive for this store and the Temporal server at {place}{lacking}"


async def _polled(client: Client, queues: Sequence[str]) -> list[str]:
    kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    polled = await asyncio.gather(*(is_polled(client, queue, kind) for queue in queues))
    return [queue for queue, here in zip(queues, polled, strict=True) if here]


def verifying_text(execution: WorkflowExecutionDescription) -> str | None:
    """How long the verifier of a rollout has been at work; None where no verification is under way."""
    seconds = verifying_seconds(execution, datetime.now(UTC))
    return None if seconds is None else f"verifying for {seconds:.0f} s"
