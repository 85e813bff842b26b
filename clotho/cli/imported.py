"""Commands whose modules are imported when they run, so that what only prints does so at once."""

import sys
from functools import cache
from typing import Any

import typer
import typer.core
import typer.main

from clotho.application import importing
from clotho.plugin import Command, load


class ImportedCommand(typer.core.TyperCommand):
    def __init__(self, declared: Command) -> None:
        super().__init__(declared.name, short_help=declared.summary)
        self._declared = declared

    def imported(self) -> typer.core.TyperCommand | typer.core.TyperGroup:
        with importing():
            found = load(self._declared.target)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        alone.command(self.name, context_settings=dict(self._declared.settings))(found)
        command = typer.main.get_command(alone)
        assert isinstance(command, typer.core.TyperCommand)
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the imported command, which then runs in place of this one."""
        command = self.imported()
        # only then: importing it here would cost what commands without it save
        if "temporalio" in sys.modules:
            _say_failures_once()
        takes_environment = any(parameter.name == "environment" for parameter in command.params)
        if args and takes_environment and isinstance(command, typer.core.TyperCommand):
            from clotho.cli.run_file import expanded  # which the help of other commands doesn't need

            args = expanded(command, args)
        return command.make_context(info_name, args, parent, **extra)


@cache
def _say_failures_once() -> None:
    """The SDK would repeat each failed attempt of a call as lines of gRPC; commands say it in a sentence."""
    from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig

    quiet = LoggingConfig(filter="off")
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=quiet)), error_if_already_set=False)
