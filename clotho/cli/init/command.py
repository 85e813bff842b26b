"""`clotho init`: write a first environment, a test for it and a settings file."""

import asyncio
import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from clotho.errors import InvalidInput

ENDING = ".template"


def command(
    folder: Annotated[Path, typer.Argument(help="Created if it is missing.", metavar="FOLDER")] = Path("."),
) -> None:
    """Write a first environment into FOLDER, with a test and a clotho.yaml.

    Nothing is overwritten: if one of the files exists, none is written.
    """
    written = asyncio.run(asyncio.to_thread(write_templates, folder))
    enter = "" if folder.resolve() == Path.cwd() else f"  cd {shlex.quote(str(folder))}\n"
    typer.echo(
        f"written: {', '.join(str(path) for path in written)}\n"
        "one rollout with a small model on this machine, and the tests (pip install pytest):\n"
        f"{enter}  clotho try my_tasks:Greetings\n  pytest\n"
        "a run: `clotho dev` in one terminal, and in another:\n"
        "  clotho run my_tasks:Greetings --run first --model http://127.0.0.1:8101/v1"
    )


def write_templates(folder: Path) -> list[Path]:
    """Write the templates. Raises InvalidInput for existing files, and for a folder that can't be written."""
    templates = [each for each in resources.files("clotho.cli.init").iterdir() if each.name.endswith(ENDING)]
    files = {folder / each.name.removesuffix(ENDING): each.read_text() for each in templates}
    if there := [str(path) for path in sorted(files) if path.exists()]:
        raise InvalidInput(f"{', '.join(there)}: there already; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            # x: a file that somebody made since the look is not overwritten
            with path.open("x") as file:
                file.write(text)
    except OSError as error:
        raise InvalidInput(f"{error.filename or folder} can't be written: {error.strerror}") from error
    return sorted(files)
