"""`clotho status`: the runs in the store, or one run's groups and what is still open."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.table import Table
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from clotho.cli.follow import current_progress, groups_table, paused_text
from clotho.cli.options import Address, Store, existing_journal
from clotho.cli.progress import progress_line
from clotho.cli.run_facts import drawn_text, served_text, settings_text
from clotho.cli.terminal import make_console, one_line, sanitized_text
from clotho.cli.waiting import stall_reason
from clotho.config import load_settings
from clotho.errors import EnvironmentFailed, InvalidInput, truncate_middle
from clotho.identifiers.ids import campaign_id, checked_run_name
from clotho.journal import Journal
from clotho.runs.groups import scored_keys
from clotho.runs.manifest import list_runs, read_manifest, read_served
from clotho.runs.pauses import paused_because
from clotho.temporal.connection import connect
from clotho.temporal.failures import Failure, failure_of
from clotho.temporal.links import run_link, workflow_link
from clotho.temporal.search_attributes import RUN

OPEN_SHOWN = 50
REASON_SHOWN = 120
TRACEBACKS_SHOWN = 3


def command(
    run: Annotated[str | None, typer.Argument(help="A run's name; all runs if absent.")] = None,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Show the runs in the store, or one run: its scored groups, and what runs or failed."""
    settings = load_settings(store, temporal)
    console = make_console()

    async def show() -> None:
        journal = await existing_journal(settings)
        if run is None:
            console.print(await runs_table(journal))
            return
        manifest = await read_manifest(journal, checked_run_name(run))
        console.print(await groups_table(journal, run))
        console.print(sanitized_text(settings_text(manifest)), soft_wrap=True)
        if (served := await read_served(journal, run)) is not None:
            console.print(sanitized_text(served_text(served)), soft_wrap=True)
        if (drawn := await drawn_text(journal, run)) is not None:
            one_line(console, drawn)
        if (reason := await paused_because(journal, run)) is not None:
            console.print(sanitized_text(paused_text(reason), "yellow"), soft_wrap=True)
        try:
            client = await connect(settings.temporal)
        except InvalidInput as error:
            one_line(console, f"what runs or failed is not shown: {error}")
            return
        workflows = await unfinished_workflows(client, run)
        if workflows.listed:
            console.print(workflows_table(workflows))
            for text in author_tracebacks(workflows):
                console.print(sanitized_text(text, "red"), soft_wrap=True)
            progress = await current_progress(client.get_workflow_handle(campaign_id(run)))
            if progress is not None:
                one_line(console, progress_line(progress))
            if trouble := await stall_reason(client, run):
                console.print(sanitized_text(trouble, "yellow"), soft_wrap=True)
        ui, namespace = settings.temporal.ui, client.namespace
        by_campaign = drawn is None
        one_line(
            console,
            workflow_link(ui, namespace, campaign_id(run)) if by_campaign else run_link(ui, namespace, run),
        )

    asyncio.run(show())


async def runs_table(journal: Journal) -> Table:
    table = Table("run", "environment", "model", "group size", "scored groups")
    for name in await list_runs(journal):
        manifest = await read_manifest(journal, name)
        scored = len(await scored_keys(journal, name))
        table.add_row(
            name, manifest.environment, sanitized_text(manifest.model), str(manifest.group_size), str(scored)
        )
    return table


@dataclass(frozen=True)
class UnfinishedWorkflow:
    execution: WorkflowExecution
    failure: Failure | None
    """Of one that has failed."""


@dataclass(frozen=True)
class UnfinishedWorkflows:
    """The run's workflows that are open, or ended without a result and weren't started again: the latest ones."""

    listed: Sequence[UnfinishedWorkflow]
    count: int
    """Of all of them."""


async def unfinished_workflows(client: Client, run: str) -> UnfinishedWorkflows:
    query = f"{RUN} = '{run}' AND ExecutionStatus != 'Completed' AND ExecutionStatus != 'ContinuedAsNew'"
    count = (await client.count_workflows(query)).count
    found = [execution async for execution in client.list_workflows(query, limit=OPEN_SHOWN)]
    latest = await asyncio.gather(*(client.get_workflow_handle(one.id).describe() for one in found))
    left = [
        current
        for execution, current in zip(found, latest, strict=True)
        if execution.run_id == current.run_id and current.status is not WorkflowExecutionStatus.COMPLETED
    ]

    async def failure(execution: WorkflowExecution) -> Failure | None:
        failed = execution.status is WorkflowExecutionStatus.FAILED
        return await failure_of(client, execution.id, execution.run_id) if failed else None

    failures = await asyncio.gather(*map(failure, left))
    return UnfinishedWorkflows(
        [UnfinishedWorkflow(*pair) for pair in zip(left, failures, strict=True)], count
    )


def workflows_table(workflows: UnfinishedWorkflows) -> Table:
    more = workflows.count > OPEN_SHOWN
    caption = f"of the latest {OPEN_SHOWN} of {workflows.count}; the Temporal UI has all" if more else None
    table = Table("workflow", "status", "started", "reason", title="open or failed", caption=caption)
    for one in workflows.listed:
        status, failure = one.execution.status, one.failure
        reason = f"{failure.kind}: {truncate_middle(failure.last_line, REASON_SHOWN)}" if failure else ""
        table.add_row(
            one.execution.id,
            status.name.lower() if status else "-",
            f"{one.execution.start_time:%Y-%m-%d %H:%M:%S}",
            sanitized_text(reason),
        )
    return table


def author_tracebacks(workflows: UnfinishedWorkflows) -> list[str]:
    """The first of the environment's own exceptions, each kind once, with the rollout that met it."""
    found: dict[str, str] = {}
    for one in workflows.listed:
        if one.failure is not None and one.failure.kind == EnvironmentFailed.__name__:
            found.setdefault(one.failure.message, one.execution.id)
    return [f"{workflow}: the environment raised\n{text}" for text, workflow in found.items()][
        :TRACEBACKS_SHOWN
    ]
