"""`clotho worker` and `clotho serve`: the application's own programs, with their own options."""

from typing import Annotated

import typer

from clotho import application
from clotho.errors import InvalidInput

ADAPTER_MODES = ("serve", "process", "evaluate")


def worker(context: typer.Context) -> None:
    """Run Temporal workers until SIGTERM; `clotho worker --help` shows their options."""
    application.replace_process("worker", *context.args)


def serve(
    context: typer.Context,
    environment: Annotated[
        str, typer.Argument(help="A module in environments/, module:Class, or tasks:SOURCE.", metavar="ENV")
    ],
    mode: Annotated[
        str, typer.Option(help="Subcommand of Atropos' command line: serve, process or evaluate.")
    ] = "serve",
) -> None:
    """Serve groups of ENV to an Atropos trainer; takes Atropos' --env.* and --openai.* options."""
    if mode not in ADAPTER_MODES:
        raise InvalidInput(f"--mode {mode}: use one of {', '.join(ADAPTER_MODES)}")
    application.replace_process("atropos_adapter", mode, f"--env.environment={environment}", *context.args)
