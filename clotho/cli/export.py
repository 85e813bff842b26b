"""`clotho export`: a run's scored groups as JSON lines, rows of tokens, or in a plugin's format."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from clotho.cli.options import Store, existing_journal
from clotho.cli.terminal import amount
from clotho.config import load_settings
from clotho.errors import InvalidInput
from clotho.evaluation.exporting import LINES, TOKENS, check_format, export, exporters, left_out_notes
from clotho.runs.disturbances import Disturbance
from clotho.runs.export import Format, export_artifacts, export_lines
from clotho.training.export import TokenExport


def format_help() -> str:
    summaries = {**LINES, **{name: each.summary for name, each in exporters().items()}}
    return "; ".join(f"{name}: {summary}" for name, summary in summaries.items()) + "."


def command(
    run: Annotated[str, typer.Argument(help="The run's name.")],
    form: Annotated[str, typer.Option("--format", help=format_help(), metavar="NAME")] = "messages",
    output: Annotated[
        Path | None, typer.Option(help="File or folder to write; standard output if absent.", metavar="FILE")
    ] = None,
    artifacts: Annotated[
        Path | None,
        typer.Option(help="Folder to write the archives of rollouts' artifacts to, too.", metavar="FOLDER"),
    ] = None,
    exclude: Annotated[
        list[Disturbance] | None,
        typer.Option(help="Leave out rollouts with this disturbance; may be given several times."),
    ] = None,
    store: Store = None,
) -> None:
    """Write the scored groups of a run as JSON lines, rows of tokens, or in a plugin's format.

    messages and tokens: a Parquet file, if the output ends in .parquet. A rollout's `disturbances` tell what
    happened to it on its way: sandboxes that were lost and restored, interrupted turns, repairs, replacements.
    `artifacts` name the files that it left, and the archive that has them.
    """
    settings = load_settings(store)

    async def write() -> None:
        journal = await existing_journal(settings)
        await check_format(journal, run, form)
        if artifacts is not None:
            try:
                archives = await export_artifacts(journal, run, artifacts)
            except OSError as error:
                raise InvalidInput(f"{error.filename} can't be written: {error.strerror}") from error
            typer.echo(f"{amount(archives, 'archive')} in {artifacts}", err=True)
        if output is not None:
            exported = await export(journal, run, form, output, exclude or ())
            typer.echo(f"{amount(exported.number, exported.of)} in {output}", err=True)
            notes = exported.notes
        elif form in exporters():
            raise InvalidInput(f"--format {form} is no lines: give --output")
        else:
            rows = TokenExport(journal, run, exclude or ())
            lines = (
                rows.lines() if form == TOKENS else export_lines(journal, run, Format(form), exclude or ())
            )
            async for line in lines:
                sys.stdout.write(line)
            sys.stdout.flush()
            notes = left_out_notes(rows)
        for note in notes:
            typer.echo(note, err=True)

    asyncio.run(write())
