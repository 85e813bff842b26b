"""Output of the commands, on a terminal and elsewhere; text from outside is shown and never obeyed."""

import os.path
import sys

from pydantic import TypeAdapter
from rich.console import Console
from rich.text import Text

from clotho.config import Settings
from clotho.escaping import for_terminal
from clotho.host import program_on_path

PLAIN_WIDTH = 160
"""Columns if the output is no terminal: room for every table."""


def make_console() -> Console:
    """A console that prints strings as they are: no markup, no emoji codes, no guessed colours."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        # rich takes 80 columns there, and would fold the tables
        console.width = PLAIN_WIDTH
    return console


def sanitized_text(text: str, style: str = "") -> Text:
    """Text from a model, a sandbox or a server; control characters become visible."""
    return Text(for_terminal(text), style)


def one_line(console: Console, text: str, style: str = "") -> None:
    """Print without wrapping, so that links and commands can be copied."""
    console.print(sanitized_text(text, style), soft_wrap=True)


def print_json(value: object) -> None:
    """Print models and dataclasses for other programs: numbers that aren't finite are null."""
    sys.stdout.write(TypeAdapter(type(value)).dump_json(value).decode() + "\n")


def amount(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 turn`, `2 turns`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def rerun_command(command: str, settings: Settings) -> str:
    """A `clotho` command as the user would type it here, with the store that is in use now."""
    # a checkout's program may be on no path
    program = "clotho" if program_on_path("clotho") else os.path.relpath(sys.argv[0])
    store = "" if settings.store == Settings.model_fields["store"].default else f" --store {settings.store}"
    return f"{program} {command}{store}"
