"""`clotho worker` and `clotho serve`: the application's own programs, with their own options."""

from typing import Annotated, Any

import typer

from clotho import application
from clotho.errors import InvalidInput

_EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}
WITH_OPTIONS: dict[str, Any] = {"context_settings": _EXTRA}
"""Options that the command doesn't know go to the program as they are."""
WITH_HELP: dict[str, Any] = {"context_settings": {**_EXTRA, "help_option_names": []}}
"""Like the above, and passes --help on, too."""
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
