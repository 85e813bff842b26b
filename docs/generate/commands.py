"""The reference page of the command line."""

from collections.abc import Iterator, Mapping
from typing import Any

import typer
import typer.core
import typer.main

import worker
from clotho.cli import offered_commands
from clotho.cli.imported import ImportedCommand
from docs.generate.fields import code, table

INTRODUCTION = """\
# Commands

This page is written by `python -m docs.generate`. `clotho COMMAND --help` says the same.

`clotho serve` passes its other options on to Atropos' command line; they are among the
[settings](settings.md#adapter).
"""


def commands_page() -> str:
    workers = typer.Typer(add_completion=False)
    workers.command("worker")(worker.main)
    commands: dict[str, Any] = {each.name: ImportedCommand(each).imported() for each in offered_commands()}
    commands["worker"] = typer.main.get_command(workers)
    return "\n".join([INTRODUCTION, *(_section(*named) for named in _leaves(commands))])


def _leaves(commands: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The commands that do something, by their whole names."""
    for name, command in commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from _leaves(command.commands, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


def _section(name: str, command: typer.core.TyperCommand) -> str:
    context = typer.Context(command)
    for parameter in command.params:
        if isinstance(parameter, typer.core.TyperOption):
            parameter.hidden = False
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [_row(*record) for record in records if record is not None and record[0] != "--help"]
    summary = " ".join((command.help or "").split())
    options = table(("option", "default", "meaning"), rows) if rows else "It has no options."
    return f"## clotho {name}\n\n{summary}\n\n{options}\n"


def _row(option: str, meaning: str) -> tuple[str, str, str]:
    text, _, facts = meaning.removesuffix("]").partition("  [")
    stated = dict(fact.partition(": ")[::2] for fact in facts.split("; ") if fact)
    note = "required" if "required" in stated else code(stated.get("default", "").strip("()"))
    return code(option.replace(" range>", ">")), note, text
