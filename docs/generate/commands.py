"""The reference page of the command line."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import typer
import typer.core
import typer.main

import worker
from clotho.cli import offered_commands
from clotho.cli.imported import ImportedCommand
from clotho.cli.run_options import RunOptions
from docs.generate.fields import code, table

INTRODUCTION = """\
# Commands

This page is written by `python -m docs.generate`. `clotho COMMAND --help` says the same.

`clotho serve` passes its other options on to Atropos' command line; they are among the
[settings](settings.md#adapter).
"""
OPTIONS_OF_RUNS = """\
## Options of runs

`clotho run`, `clotho eval` and `clotho try` have these options in common.
"""
COMMON = {*(field.name for field in fields(RunOptions)), "help_all"}
"""Names of the parameters that `with_run_options` gives to a command; others have single ones of them."""


def commands_page() -> str:
    workers = typer.Typer(add_completion=False)
    workers.command("worker")(worker.run_workers)
    commands: dict[str, Any] = {each.name: ImportedCommand(each).imported() for each in offered_commands()}
    commands["worker"] = typer.main.get_command(workers)
    sections = (_section(*named) for named in _leaves(commands))
    return "\n".join([INTRODUCTION, *sections, OPTIONS_OF_RUNS, *_panels(commands["run"])])


def _leaves(commands: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The commands that do something, by their whole names."""
    for name, command in commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from _leaves(command.commands, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


def _section(name: str, command: typer.core.TyperCommand) -> str:
    summary = " ".join((command.help or "").split())
    shares = {parameter.name for parameter in command.params} >= COMMON
    own = [parameter for parameter in command.params if not shares or parameter.name not in COMMON]
    options = _options(command, own) or "It has no options."
    if shares:
        options += "\n\nIt also has the [options of runs](#options-of-runs)."
    return f"## clotho {name}\n\n{summary}\n\n{options}\n"


def _panels(command: typer.core.TyperCommand) -> Iterator[str]:
    """The common options of runs, a table for each panel of `clotho run --help-all`."""
    panels: dict[str, list[Any]] = {}
    for parameter in command.params:
        if parameter.name in COMMON:
            panels.setdefault(getattr(parameter, "rich_help_panel", None) or "Others", []).append(parameter)
    for panel, parameters in panels.items():
        yield f"### {panel}\n\n{_options(command, parameters)}\n"


def _options(command: typer.core.TyperCommand, parameters: Iterable[Any]) -> str:
    """A table of the parameters, those that `--help` leaves out included; empty without any."""
    context = typer.Context(command)
    rows = []
    for parameter in parameters:
        if isinstance(parameter, typer.core.TyperOption):
            parameter.hidden = False
        record = parameter.get_help_record(context)
        if record is not None and record[0] != "--help":
            rows.append(_row(*record))
    return table(("option", "default", "meaning"), rows) if rows else ""


def _row(option: str, meaning: str) -> tuple[str, str, str]:
    text, _, facts = meaning.removesuffix("]").partition("  [")
    stated = dict(fact.partition(": ")[::2] for fact in facts.split("; ") if fact)
    note = "required" if "required" in stated else code(stated.get("default", "").strip("()"))
    return code(option.replace(" range>", ">")), note, text
