"""`clotho demo`: the whole chain on one machine, from sampled turns to exported groups."""

import asyncio
from itertools import count
from typing import Annotated

import typer
from rich.console import Console

from clotho.campaigns import RunOrder, run_manifest, start_campaign
from clotho.cli.dev import interrupted
from clotho.cli.follow import follow
from clotho.cli.options import Store, open_journal
from clotho.config import load_settings
from clotho.embedded.services import Ports, local_services
from clotho.entries import Endpoint
from clotho.export import Format, export_run
from clotho.identifiers import campaign_id
from clotho.journal import Journal
from clotho.runs import list_runs
from clotho.temporal import connect, workflow_link

ENVIRONMENT = "file_tasks"


def command(
    groups: Annotated[int, typer.Option(help="How many items to roll out.", min=1)] = 12,
    group_size: Annotated[int, typer.Option(help="Rollouts of each item.", min=1)] = 4,
    keep: Annotated[bool, typer.Option(help="Keep the services up at the end, until Ctrl-C.")] = False,
    store: Store = None,
) -> None:
    """Start all services, roll out file_tasks with the embedded model, and export what it came to."""
    settings = load_settings(store=store)
    console = Console()

    async def demonstrate() -> None:
        journal = open_journal(settings)
        run = await unused_name(journal)
        async with local_services(settings, Ports.free(), console.print) as services:
            client = await connect(
                settings.temporal.model_copy(update={"address": services.temporal.address})
            )
            order = RunOrder(
                manifest=run_manifest(ENVIRONMENT, run, services.model.model, group_size=group_size),
                endpoint=Endpoint(base_url=services.model_url),
                groups=groups,
                max_open_groups=groups,
            )
            handle = await start_campaign(client, journal, order)
            await follow(console, handle, journal, run)
            exported = settings.folder / "exports" / f"{run}.jsonl"
            lines = await export_run(journal, run, Format.GROUPS, exported)
            console.print(f"{lines} groups in {exported}")
            console.print(f"a transcript: .venv/bin/clotho show {run}/g000000/r0")
            console.print(f"Temporal UI: {workflow_link(services.ui, client.namespace, campaign_id(run))}")
            if keep:
                console.print("services stay up until Ctrl-C")
                await interrupted().wait()
            else:
                console.print("to keep the UI up: make demo KEEP=1")

    asyncio.run(demonstrate())


async def unused_name(journal: Journal) -> str:
    """demo-1, demo-2, …: a name given twice would find its work done."""
    taken = set(await list_runs(journal))
    return next(name for number in count(1) if (name := f"demo-{number}") not in taken)
