"""The table of `clotho status`: the progress of each run, and whether workers serve it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean

from rich.table import Table
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError

from clotho.cli.summary import cost_text, duration_text, started_text
from clotho.cli.terminal import sanitized_text
from clotho.cli.waiting import is_polled, unserved
from clotho.evaluation.summary import run_cost
from clotho.identifiers.ids import campaign_id
from clotho.journal import Journal
from clotho.processes.liveness import last_signs
from clotho.rollouts.run import RunManifest
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.groups import is_large, scored_groups, scored_keys, target_groups
from clotho.runs.manifest import list_runs, opened_at, read_manifest
from clotho.runs.states import NOT_KNOWN, SERVER_SECONDS, current_progress, run_state
from clotho.temporal.states import verifying_seconds


async def runs_table(journal: Journal, client: Client | None) -> Table:
    """A row for each run, the latest last; without a `client` their states are unknown."""
    table = Table(
        "run", "state", "started", "took", "scored groups", "rewards", "cost", "environment", "model"
    )
    for row in sorted([await _row(journal, name) for name in await list_runs(journal)], key=_started):
        name = row.manifest.run
        scored = row.scored if row.scored is not None else await scored_count(journal, client, name)
        state = await run_state(journal, client, name, scored, row.target)
        if state == NOT_KNOWN:
            client = None  # a server that doesn't answer is waited for once, not for every run
        shown = NOT_KNOWN if scored is None else str(scored)
        table.add_row(
            name,
            state,
            started_text(row.started),
            NOT_KNOWN if row.seconds is None else duration_text(row.seconds),
            f"{shown}/{row.target} × {row.manifest.group_size}" if row.target is not None else shown,
            NOT_KNOWN if row.reward is None else f"{row.reward:.3f}",
            cost_text(row.cost),
            sanitized_text(row.manifest.environment),
            sanitized_text(row.manifest.model),
        )
    return table


@dataclass(frozen=True)
class RunRow:
    """A run as the store has it. Scored groups of a large run aren't read: what is made of them is None."""

    manifest: RunManifest
    started: float | None
    target: int | None
    scored: int | None
    seconds: float | None
    reward: float | None
    cost: float | None


async def _row(journal: Journal, run: str) -> RunRow:
    manifest, started = await read_manifest(journal, run), await opened_at(journal, run)
    target = await target_groups(journal, run)
    if await is_large(journal, run):
        return RunRow(manifest, started, target, None, None, None, None)
    groups = [entry for _, entry in await scored_groups(journal, run)]
    means = [fmean([each.score for each in entry.siblings]) for entry in groups if entry.siblings]
    ended = max((entry.ended for entry in groups if entry.ended is not None), default=None)
    return RunRow(
        manifest,
        started,
        target,
        len(groups),
        ended - started if ended is not None and started is not None else None,
        fmean(means) if means else None,
        await run_cost(journal, run),
    )


def _started(row: RunRow) -> float:
    return row.started or 0.0


async def scored_count(journal: Journal, client: Client | None, run: str) -> int | None:
    """The number of the run's scored groups; of a large run what its campaign says, None if it doesn't answer."""
    if not await is_large(journal, run):
        return len(await scored_keys(journal, run))
    progress = await current_progress(client.get_workflow_handle(campaign_id(run))) if client else None
    return progress.scored + progress.skipped if progress is not None else None


async def workers_text(journal: Journal, client: Client | None) -> str:
    """Whether workers live that serve this store, and the Temporal server that is asked."""
    present = [name for name, sign in (await last_signs(journal)).items() if sign.alive]
    # A host's own heartbeat comes from its processes, which are named after it.
    alive = [name for name in present if not any(each.startswith(f"{name}-") for each in present)]
    none = "workers: none is alive for this store; start `clotho dev` or `clotho worker`"
    if client is None:
        return f"workers: {len(alive)} alive for this store" if alive else none
    place = f"{client.service_client.config.target_host}, namespace {client.namespace}"
    try:
        async with asyncio.timeout(SERVER_SECONDS):
            here = await _polled_queues(client, alive)
            missing = await unserved(client, TaskQueues())
    except (RPCError, TimeoutError):
        if not alive:
            return none
        return f"workers: {len(alive)} alive for this store; {place} doesn't answer"
    if not alive and TaskQueues().campaigns not in missing:
        return f"workers: none is alive for this store; those at {place} serve another: give it with --store"
    if not alive:
        return none
    if not here:
        return (
            f"workers: {len(alive)} alive for this store, none of which serves the Temporal server at {place}; "
            "give theirs with --temporal"
        )
    lacking = f"; no worker serves {', '.join(missing)}" if missing else ""
    return f"workers: {len(here)} alive for this store and the Temporal server at {place}{lacking}"


async def _polled_queues(client: Client, queues: Sequence[str]) -> list[str]:
    kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    polled = await asyncio.gather(*(is_polled(client, queue, kind) for queue in queues))
    return [queue for queue, here in zip(queues, polled, strict=True) if here]


def verifying_text(execution: WorkflowExecutionDescription) -> str | None:
    """How long the verifier of a rollout has been at work; None where no verification is under way."""
    seconds = verifying_seconds(execution, datetime.now(UTC))
    return None if seconds is None else f"verifying for {seconds:.0f} s"
