"""`clotho status`: the runs in the store, or one run's groups and what is still open."""

import asyncio
from typing import Annotated

import typer
from rich.table import Table
from temporalio.client import Client, WorkflowExecutionStatus

from clotho.cli.follow import current_progress, groups_table, paused_text
from clotho.cli.options import Address, Store, existing_journal
from clotho.cli.progress import progress_line
from clotho.cli.run_facts import drawn_text, served_text
from clotho.cli.terminal import foreign, make_console, one_line
from clotho.cli.waiting import held_up
from clotho.config import load_settings
from clotho.errors import InvalidInput
from clotho.identifiers import campaign_id, checked_run_name
from clotho.journal import Journal
from clotho.runs.groups import scored_keys
from clotho.runs.manifest import list_runs, read_manifest, read_served
from clotho.runs.pauses import paused_because
from clotho.search_attributes import RUN
from clotho.temporal.connection import connect
from clotho.temporal.links import run_link, workflow_link

OPEN_SHOWN = 50


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
        await read_manifest(journal, checked_run_name(run))
        console.print(await groups_table(journal, run))
        if (served := await read_served(journal, run)) is not None:
            console.print(foreign(served_text(served)), soft_wrap=True)
        if (drawn := await drawn_text(journal, run)) is not None:
            one_line(console, drawn)
        if (reason := await paused_because(journal, run)) is not None:
            console.print(foreign(paused_text(reason), "yellow"), soft_wrap=True)
        try:
            client = await connect(settings.temporal)
        except InvalidInput as error:
            one_line(console, f"what runs or failed is not shown: {error}")
            return
        workflows = await workflows_table(client, run)
        if workflows.row_count:
            console.print(workflows)
            progress = await current_progress(client.get_workflow_handle(campaign_id(run)))
            if progress is not None:
                one_line(console, progress_line(progress))
            if trouble := await held_up(client, run):
                console.print(foreign(trouble, "yellow"), soft_wrap=True)
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
            name, manifest.environment, foreign(manifest.model), str(manifest.group_size), str(scored)
        )
    return table


async def workflows_table(client: Client, run: str) -> Table:
    """The run's workflows that are open, or ended without a result and weren't started again."""
    query = f"{RUN} = '{run}' AND ExecutionStatus != 'Completed' AND ExecutionStatus != 'ContinuedAsNew'"
    count = (await client.count_workflows(query)).count
    caption = (
        f"of the latest {OPEN_SHOWN} of {count}; the Temporal UI has all" if count > OPEN_SHOWN else None
    )
    table = Table("workflow", "status", "started", title="open or failed", caption=caption)
    found = [execution async for execution in client.list_workflows(query, limit=OPEN_SHOWN)]
    latest = await asyncio.gather(*(client.get_workflow_handle(one.id).describe() for one in found))
    for execution, current in zip(found, latest, strict=True):
        done = current.status is WorkflowExecutionStatus.COMPLETED
        if execution.run_id == current.run_id and not done:
            status = current.status.name.lower() if current.status else "-"
            table.add_row(execution.id, status, f"{execution.start_time:%Y-%m-%d %H:%M:%S}")
    return table
