"""`clotho report`: a run as one HTML file."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from clotho.cli.options import Address, Store
from clotho.config import cache_folder, load_settings
from clotho.errors import InvalidInput
from clotho.identifiers.ids import checked_run_name
from clotho.journal.open_store import open_existing
from clotho.runs.export import placed


def command(
    run: Annotated[str, typer.Argument(help="The run's name.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.", metavar="FILE")] = Path(
        "report.html"
    ),
    success: Annotated[
        float, typer.Option(help="The least reward that passes, for pass@k.", metavar="REWARD")
    ] = 1.0,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Write a report on a run as one HTML file, which needs nothing else to be read.

    Rewards, pass@k, turns, tokens, each item, failures, times by phase and tool, how the rewards and lengths of
    disturbed rollouts differ from those of others, settings and versions. The run may still be running.
    """
    settings = load_settings(store, temporal)
    from clotho.plugins.viewer.report import write_report
    from clotho.plugins.viewer.run_index import RunIndexes
    from clotho.plugins.viewer.workflows import Workflows

    opened = open_existing(settings.store, settings)
    indexes = RunIndexes(opened, cache_folder() / "viewer")
    text = asyncio.run(
        write_report(opened, indexes, Workflows(settings.temporal), checked_run_name(run), success)
    )
    try:
        with placed(output) as path:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{error.filename or output} can't be written: {error.strerror}") from error
    typer.echo(f"report on {run} in {output}", err=True)
