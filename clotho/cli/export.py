"""`clotho export`: a run's scored groups as JSON lines, rows of tokens, or in the formats of Inspect and Harbor."""

import asyncio
import sys
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from clotho.cli.options import Store, existing_journal
from clotho.cli.terminal import amount
from clotho.config import load_settings
from clotho.errors import InvalidInput
from clotho.evaluation.figures import figures_of
from clotho.evaluation.harbor_job import write_harbor_job
from clotho.evaluation.inspect_log import write_inspect_log
from clotho.evaluation.results import read_results
from clotho.journal import Journal
from clotho.runs.disturbances import Disturbance
from clotho.runs.export import Format, export_artifacts, export_lines, export_run
from clotho.training.export import TokenExport


class Written(StrEnum):
    MESSAGES = Format.MESSAGES.value
    SHAREGPT = Format.SHAREGPT.value
    GROUPS = Format.GROUPS.value
    TOKENS = "tokens"
    INSPECT = "inspect"
    HARBOR = "harbor"


WHOLE = {Written.INSPECT: write_inspect_log, Written.HARBOR: write_harbor_job}
"""Formats that are written as a whole, to a file or a folder."""


def command(
    run: Annotated[str, typer.Argument(help="The run's name.")],
    form: Annotated[Written, typer.Option("--format", help="Format of the lines.")] = Written.MESSAGES,
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

    messages: one rollout per line, in the OpenAI format, or a row per rollout in a Parquet file if the output
    ends in .parquet. sharegpt: one rollout per line, as from/value pairs. groups: one group per line, with its
    item and all of its rollouts. tokens: one sequence of tokens per line, with masks, logprobs and the reward,
    or a Parquet file of them. inspect: a log of Inspect, such as run.eval, for its viewer. harbor: a job folder
    of Harbor, with each rollout's trajectory (ATIF) and reward. A rollout's `disturbances` tell what happened
    to it on its way: sandboxes that were lost and restored, interrupted turns, repairs, replacements.
    `artifacts` name the files that it left, and the archive that has them.
    """
    settings = load_settings(store)

    async def write() -> None:
        journal = await existing_journal(settings)
        if artifacts is not None:
            archives = await export_artifacts(journal, run, artifacts)
            typer.echo(f"{archives} archives in {artifacts}", err=True)
        if form in WHOLE:
            await write_whole(journal, run, form, output, exclude or ())
            return
        if form is Written.TOKENS:
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
    journal: Journal, run: str, form: Written, output: Path | None, exclude: Collection[Disturbance]
) -> None:
    if output is None:
        raise InvalidInput(f"--format {form} is no lines: give --output")
    results = await read_results(journal, run)
    rollouts = await WHOLE[form](journal, results.manifest, figures_of(results), output, exclude)
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
