"""`clotho delete`: remove a run from the store and from Temporal."""

import asyncio
from typing import Annotated

import typer

from clotho.cli.options import Address, Store, existing_journal
from clotho.cli.terminal import amount
from clotho.config import load_settings
from clotho.identifiers.ids import checked_run_name
from clotho.runs.deletion import delete_run
from clotho.temporal.connection import connect


def command(
    run: Annotated[str, typer.Argument(help="The run's name.")],
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Delete a run that has ended: journal, results and workflow histories. What was exported stays."""
    # before the question: nobody confirms what is refused then
    checked_run_name(run)
    settings = load_settings(store, temporal)
    if not yes:
        typer.confirm(f"delete run {run} in {settings.store}, its results included?", abort=True)

    async def work() -> int:
        journal = await existing_journal(settings)
        return await delete_run(journal, await connect(settings.temporal), run)

    typer.echo(f"run {run} is deleted: {amount(asyncio.run(work()), 'entry', 'entries')}")
