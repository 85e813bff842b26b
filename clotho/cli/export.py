"""`clotho export`: a run's scored groups as JSON lines, rows of tokens, or in a plugin's format."""

import asyncio
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from clotho.cli.options import Store, existing_journal
from clotho.cli.terminal import amount
from clotho.config import load_settings
from clotho.errors import InvalidInput
from clotho.evaluation.figures import figures_of
from clotho.evaluation.results import read_results
from clotho.journal import Journal
from clotho.plugin import Exporter, load, plugins
from clotho.runs.disturbances import Disturbance
from clotho.runs.export import Format, export_artifacts, export_lines, export_run
from clotho.training.export import TokenExport

LINES = {
    "messages": "one rollout per line, in the OpenAI format",
    "sharegpt": "one rollout per line, as from/value pairs",
    "groups": "one group per line, with its item and all of its rollouts",
    "tokens": "one sequence of tokens per line, with masks, logprobs and the reward",
}
"""Formats that the core writes, and what they are."""


def exporters() -> dict[str, Exporter]:
    """The formats of plugins, by name."""
    return {name: each for plugin in plugins().values() for name, each in plugin.exporters.items()}


def format_help() -> str:
    summaries = {**LINES, **{name: each.summary for name, each in exporters().items()}}
    return "; ".join(f"{name}: {summary}" for name, summary in summaries.items()) + "."


def checked_format(form: str) -> str:
    """Raises BadParameter for a format that neither the core nor a plugin writes."""
    if form not in (known := [*LINES, *exporters()]):
        raise typer.BadParameter(f"no format {form!r}; known are {', '.join(known)}")
    return form


def command(
    run: Annotated[str, typer.Argument(help="The run's name.")],
    form: Annotated[
        str, typer.Option("--format", help=format_help(), callback=checked_format, metavar="NAME")
    ] = "messages",
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
    """Write the scored groups of a run as JSON lines.

    messages and tokens: a Parquet file, if the output ends in .parquet. A rollout's `disturbances` tell what
    happened to it on its way: sandboxes that were lost and restored, interrupted turns, repairs, replacements.
    `artifacts` name the files that it left, and the archive that has them.
    """
    settings = load_settings(store)

    async def write() -> None:
        journal = await existing_journal(settings)
        if artifacts is not None:
            archives = await export_artifacts(journal, run, artifacts)
            typer.echo(f"{archives} archives in {artifacts}", err=True)
        if form in exporters():
            await write_whole(journal, run, form, output, exclude or ())
            return
        if form == "tokens":
            await write_tokens(TokenExport(journal, run, exclude or ()), output)
            return
        if output is not None:
            lines = await export_run(journal, run, Format(form), output, exclude or ())
            typer.echo(f"{amount(lines, 'line')} in {output}", err=True)
            return
        async for line in export_lines(journal, run, Format(form), exclude or ()):
            sys.stdout.write(line)
        sys.stdout.flush()

    try:
        asyncio.run(write())
    except OSError as error:
        if output is None and artifacts is None:
            raise
        raise InvalidInput(f"{error.filename or output} can't be written: {error.strerror}") from error


async def write_whole(
    journal: Journal, run: str, form: str, output: Path | None, exclude: Collection[Disturbance]
) -> None:
    if output is None:
        raise InvalidInput(f"--format {form} is no lines: give --output")
    results = await read_results(journal, run)
    export = load(exporters()[form].target)
    rollouts = await export(journal, results.manifest, figures_of(results), output, exclude)
    typer.echo(f"{amount(rollouts, 'rollout')} in {output}", err=True)
    if results.unscored:
        typer.echo(f"{results.unscored} items have no score, and are left out", err=True)


async def write_tokens(export: TokenExport, output: Path | None) -> None:
    if output is not None:
        typer.echo(f"{amount(await export.write(output), 'row')} in {output}", err=True)
    else:
        async for line in export.lines():
            sys.stdout.write(line)
        sys.stdout.flush()
    if export.left_out:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(export.left_out.items()))
        typer.echo(f"groups left out, which can't be trained on: {reasons}", err=True)
