"""The `clotho` command: starts and follows runs, and shows what they came to."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import typer
from temporalio.service import RPCError

from clotho.cli import atropos_api, dev, export, operate, run, show, status
from clotho.cli.demo import command as demo
from clotho.cli.doctor import command as doctor
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
app.command("doctor")(doctor.command)
app.command("atropos-api")(atropos_api.command)
app.command("pause")(operate.pause)
app.command("resume")(operate.resume)
app.command("cancel")(operate.cancel)
app.command("retry")(operate.retry)


def main() -> NoReturn:
    """Run the command line; errors of Clotho's own are one line that says what to do."""
    sys.path.insert(0, str(Path.cwd()))  # environments are modules beside the user, as for worker.py
    status = run_command()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by the interpreter's shutdown, which the Temporal SDK's native threads can abort.
    os._exit(status)


def run_command() -> int:
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except ClothoError as error:
        return complain(str(error))
    except RPCError as error:
        return complain(f"Temporal answers {error.status.name}: {error.message}")
    return 0


def complain(message: str) -> int:
    typer.echo(f"clotho: {foreign(message).plain}", err=True)
    return 1
