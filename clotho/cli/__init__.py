"""The `clotho` command: starts and follows runs, and shows what they came to."""

import os
import sys
from importlib import metadata
from typing import Annotated, NoReturn

import typer
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError

from clotho import application
from clotho.cli import (
    atropos_api,
    delete,
    dev,
    export,
    gc,
    operate,
    programs,
    run,
    show,
    status,
    tasks,
    tools,
    try_rollout,
)
from clotho.cli.demo import command as demo
from clotho.cli.doctor import command as doctor
from clotho.cli.init import command as init
from clotho.cli.terminal import sanitized_text
from clotho.errors import ClothoError
from clotho.host_failures import described, is_host_failure

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"clotho {metadata.version('clotho-rollouts')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """LLM-agent rollouts as durable workflows on Temporal."""


app.command("dev")(dev.command)
app.command("demo")(demo.command)
app.command("init")(init.command)
app.command("try")(try_rollout.command)
app.command("run")(run.command)
app.command("status")(status.command)
app.command("show")(show.command)
app.command("export")(export.command)
app.command("doctor")(doctor.command)
app.command("worker", **programs.WITH_HELP)(programs.worker)
app.command("serve", **programs.WITH_OPTIONS)(programs.serve)
app.command("atropos-api")(atropos_api.command)
app.command("pause")(operate.pause)
app.command("resume")(operate.resume)
app.command("cancel")(operate.cancel)
app.command("retry")(operate.retry)
app.command("delete")(delete.command)
app.command("gc")(gc.command)
app.command("tools")(tools.command)
app.add_typer(tasks.app, name="tasks")


def main() -> NoReturn:
    """Run the command line; errors of Clotho's own are one line that says what to do."""
    # The SDK would repeat each failed attempt of a call as lines of gRPC; commands say it in a sentence.
    quiet = LoggingConfig(filter="off")
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=quiet)))
    application.on_path()  # environments are modules beside the user, as for workers
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
    except OSError as error:
        if not is_host_failure(error):
            raise
        return complain(f"this machine: {described(error)}")
    except RPCError as error:
        return complain(f"Temporal answers {error.status.name}: {error.message}")
    return 0


def complain(message: str) -> int:
    typer.echo(f"clotho: {sanitized_text(message).plain}", err=True)
    return 1
