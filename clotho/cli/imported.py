"""Commands whose modules are imported when they run, so that what only prints does so at once."""

import importlib
import sys
from functools import cache
from typing import Any

import typer
import typer.core
import typer.main


class ImportedCommand(typer.core.TyperCommand):
    """The command at `place`, a function or a Typer application named as module:name."""

    def __init__(self, name: str, place: str, summary: str, **settings: Any) -> None:
        super().__init__(name, short_help=summary)
        self._place = place
        self._settings = settings

    def imported(self) -> typer.core.TyperCommand | typer.core.TyperGroup:
        module, _, name = self._place.partition(":")
        found = getattr(importlib.import_module(module), name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        alone.command(self.name, **self._settings)(found)
        command = typer.main.get_command(alone)
        assert isinstance(command, typer.core.TyperCommand)
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the imported command, which then runs in place of this one."""
        command = self.imported()
        if "temporalio" in sys.modules:
            _say_failures_once()
        return command.make_context(info_name, args, parent, **extra)


@cache
def _say_failures_once() -> None:
    """The SDK would repeat each failed attempt of a call as lines of gRPC; commands say it in a sentence."""
    from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig

    quiet = LoggingConfig(filter="off")
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=quiet)), error_if_already_set=False)
