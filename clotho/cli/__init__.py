"""The `clotho` command: starts and follows runs, and shows what they came to."""

from typing import Annotated, Any, NoReturn

import typer
import typer.core

from clotho import application
from clotho.cli.imported import ImportedCommand
from clotho.errors import ClothoError, IsolationUnavailable
from clotho.escaping import for_terminal
from clotho.host_failures import described, is_host_failure
from clotho.plugin import UNKNOWN_OPTIONS_PASS, Command, plugins
from clotho.processes.ending import run_to_end

UNISOLATED_STATUS = 2
"""Exit status where no sandbox can be had on the workers' machine: nothing was sampled."""
OWN = (
    Command(
        "dev",
        "clotho.cli.dev:command",
        "Run a Temporal server, the embedded model and the workers until Ctrl-C.",
    ),
    Command(
        "init",
        "clotho.cli.init.command:command",
        "Write a first environment into FOLDER, with a test and a clotho.yaml.",
    ),
    Command(
        "try",
        "clotho.cli.try_rollout:command",
        "Roll out ENV once and print everything: prompt, turns, tool results and reward.",
    ),
    Command(
        "run", "clotho.cli.run:command", "Start a run of ENV, or resume the one of that name, and follow it."
    ),
    Command(
        "eval",
        "clotho.cli.evaluation:app",
        "Roll held-out items of ENV out and tell how good its policy is, and how surely; compare two runs.",
    ),
    Command(
        "status",
        "clotho.cli.status:command",
        "Show the runs in the store, or what one run has come to: its groups, rewards, work, cost and failures.",
    ),
    Command(
        "show",
        "clotho.cli.show:command",
        "Show a rollout turn by turn, with tool results, timings and reward; or a group, or a run.",
    ),
    Command(
        "export",
        "clotho.cli.export:command",
        "Write the scored groups of a run as JSON lines, rows of tokens, or in a plugin's format.",
    ),
    Command(
        "doctor",
        "clotho.cli.doctor.command:command",
        "Examine this machine, its sandboxes, the workers and the open runs.",
    ),
    Command(
        "worker",
        "clotho.cli.programs:worker",
        "Run Temporal workers until SIGTERM; `clotho worker --help` shows their options.",
        # --help goes through: the program prints its own
        {**UNKNOWN_OPTIONS_PASS, "help_option_names": []},
    ),
    Command(
        "deploy",
        "clotho.cli.deploy:command",
        "Make a version of the workers current: new runs, groups and rollouts begin with it.",
    ),
    Command(
        "pause",
        "clotho.cli.operate:pause",
        "Pause a run, group or rollout before its next turns, and wait until all of it has stopped.",
    ),
    Command(
        "resume",
        "clotho.cli.operate:resume",
        "Resume a run, group or rollout, with what is paused in it, and start a run's unscored groups again.",
    ),
    Command(
        "cancel",
        "clotho.cli.operate:cancel",
        "End a run, group or rollout and its sandboxes, without a reward. What was scored stays.",
    ),
    Command(
        "retry",
        "clotho.cli.operate:retry",
        "Start a failed or cancelled run, group or rollout again. What was scored stays.",
    ),
    Command(
        "delete",
        "clotho.cli.delete:command",
        "Delete a run that has ended: journal, results and workflow histories. What was exported stays.",
    ),
    Command("gc", "clotho.cli.gc:command", "Remove leftovers; runs with open workflows are left alone."),
    Command(
        "tools",
        "clotho.cli.tools:command",
        "List the tools that runs can offer, their toolsets, and what is missing for the others.",
    ),
)


def offered_commands() -> tuple[Command, ...]:
    """The core's commands, and every plugin's."""
    return (*OWN, *(command for plugin in plugins().values() for command in plugin.commands))


class Commands(typer.core.TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {each.name: ImportedCommand(each) for each in offered_commands()}


app = typer.Typer(
    cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


def show_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        typer.echo(f"clotho {metadata.version('clotho-rollouts')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """LLM-agent rollouts as durable workflows on Temporal."""


def main() -> NoReturn:
    """Run the command line; errors of Clotho's own are one line that says what to do."""
    application.on_path()  # environments are modules beside the user, as for workers
    run_to_end(run_command)


def run_command() -> int:
    try:
        app()
    except IsolationUnavailable as error:
        return complain(str(error), UNISOLATED_STATUS)
    except ClothoError as error:
        return complain(str(error))
    except OSError as error:
        # any other OSError is a defect, whose traceback is wanted
        if not is_host_failure(error):
            raise
        return complain(f"this machine: {described(error)}")
    except Exception as error:
        from temporalio.service import RPCError  # what only prints is done before this is imported

        if not isinstance(error, RPCError):
            raise
        return complain(f"Temporal answers {error.status.name}: {error.message}")
    return 0


def complain(message: str, status: int = 1) -> int:
    typer.echo(f"clotho: {for_terminal(message)}", err=True)
    return status
