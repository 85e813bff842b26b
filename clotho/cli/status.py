"""`clotho status`: the runs in the store, or one run's groups and what is still open."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from temporalio.client import Client

from clotho.cli.follow import groups_table
from clotho.cli.options import Address, Store, open_journal
from clotho.config import load_settings
from clotho.errors import InvalidInput
from clotho.identifiers import campaign_id
from clotho.journal import Journal
from clotho.runs import list_runs, read_manifest, scored_groups
from clotho.search_attributes import RUN
from clotho.temporal import connect, workflow_link

OPEN_SHOWN = 50


def command(
    run: Annotated[str | None, typer.Argument(help="A run's name; all runs if absent.")] = None,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Show the runs in the store, or one run: its scored groups, and what runs or failed."""
    settings = load_settings(store=store, temporal={"address": temporal} if temporal else None)
    journal, console = open_journal(settings), Console()

    async def show() -> None:
        if run is None:
            console.print(await runs_table(journal))
            return
        await read_manifest(journal, run)
        console.print(await groups_table(journal, run))
        try:
            client = await connect(settings.temporal)
        except InvalidInput as error:
            console.print(f"workflows not shown: {error}")
            return
        console.print(await workflows_table(client, run))
        console.print(workflow_link(settings.temporal.ui, client.namespace, campaign_id(run)))

    asyncio.run(show())


async def runs_table(journal: Journal) -> Table:
    table = Table("run", "environment", "model", "group size", "scored groups")
    for name in await list_runs(journal):
        manifest = await read_manifest(journal, name)
        scored = len(await scored_groups(journal, name))
        table.add_row(name, manifest.environment, manifest.model, str(manifest.group_size), str(scored))
    return table


async def workflows_table(client: Client, run: str) -> Table:
    """The run's workflows that are open, or ended without a result."""
    table = Table("workflow", "status", "started", title="open or failed")
    query = f"{RUN} = '{run}' AND ExecutionStatus != 'Completed' AND ExecutionStatus != 'ContinuedAsNew'"
    async for execution in client.list_workflows(query, limit=OPEN_SHOWN):
        status = execution.status.name.lower() if execution.status else "-"
        table.add_row(execution.id, status, f"{execution.start_time:%Y-%m-%d %H:%M:%S}")
    return table
