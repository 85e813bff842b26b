"""The `clotho` command: starts and follows runs, and shows what they came to."""

import sys
from pathlib import Path

import typer
from temporalio.service import RPCError

from clotho.cli import demo, dev, export, run, show, status
from clotho.cli.terminal import foreign
from clotho.errors import ClothoError

app = typer.Typer(
    help="LLM-agent rollouts as durable workflows on Temporal.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("dev")(dev.command)
app.command("demo")(demo.command)
app.command("run")(run.command)
app.command("status")(status.command)
app.command("show")(show.command)
app.command("export")(export.command)


def main() -> None:
    """Run the command line; errors of Clotho's own are one line that says what to do."""
    sys.path.insert(0, str(Path.cwd()))  # environments are modules beside the user, as for worker.py
    try:
        app()
    except ClothoError as error:
        fail(str(error))
    except RPCError as error:
        fail(f"Temporal answers {error.status.name}: {error.message}")


def fail(message: str) -> None:
    typer.echo(f"clotho: {foreign(message).plain}", err=True)
    sys.exit(1)
