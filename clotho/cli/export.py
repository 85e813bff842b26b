"""`clotho export`: a run's scored groups as JSON lines."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from clotho.cli.options import Store, open_journal
from clotho.config import load_settings
from clotho.errors import InvalidInput
from clotho.export import Format, export_run


def command(
    run: Annotated[str, typer.Argument(help="The run's name.")],
    form: Annotated[Format, typer.Option("--format", help="What a line holds.")] = Format.MESSAGES,
    output: Annotated[Path | None, typer.Option(help="File to write; standard output if absent.")] = None,
    store: Store = None,
) -> None:
    """Write the scored groups of a run as JSON lines.

    messages: a rollout a line, in the OpenAI format. sharegpt: a rollout a line, as from/value pairs.
    groups: a group a line, with its item and all of its rollouts.
    """
    journal = open_journal(load_settings(store=store))
    try:
        lines = asyncio.run(export_run(journal, run, form, output))
    except OSError as error:
        raise InvalidInput(f"{output} can't be written: {error.strerror}") from error
    if output is not None:
        typer.echo(f"{lines} lines in {output}", err=True)
