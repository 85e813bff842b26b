"""The options of a run as values: of a YAML file, or of the Python API's arguments. Their names are the flags'."""

import difflib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import typer
import typer.core
import yaml
from pydantic import TypeAdapter, ValidationError

from clotho.cli.run_options import RunOptions
from clotho.errors import InvalidInput

ALIASES = {"set": "config", "filter": "filters"}
"""Names of flags that differ from their fields."""
COMMAND = ("environment", "run", "model", "groups", "group_size", "max_open_groups", "items", "priority")
"""Arguments of `clotho run` beside RunOptions."""
UNSAVED = ("save", "detach", "dry_run")
"""Options of one call, not of the run."""
FLAGS = {field: flag for flag, field in ALIASES.items()}


@cache
def option_types() -> Mapping[str, Any]:
    return get_type_hints(RunOptions)


def options_of(values: Mapping[str, Any]) -> RunOptions:
    """The options with these values. Raises InvalidInput that names those which aren't options, or don't fit."""
    return RunOptions(**checked_options(values))


def checked_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of RunOptions as the command line would give them."""
    types, checked = option_types(), {}
    for flag, value in values.items():
        name = ALIASES.get(flag, flag)
        # the fields behind `set` and `filter` are no options by their own names
        if name not in types or flag in FLAGS:
            known = [*COMMAND, *(FLAGS.get(each, each) for each in types)]
            near = difflib.get_close_matches(flag, known, 1)
            raise InvalidInput(f"there is no option {flag!r}" + (f": do you mean {near[0]}?" if near else ""))
        if value is None:
            continue
        try:
            checked[name] = TypeAdapter(types[name]).validate_python(as_text(name, value))
        except ValidationError as error:
            raise InvalidInput(f"{flag}: {error.errors()[0]['msg']}") from error
    return checked


def as_text(name: str, value: Any) -> Any:
    """Objects and lists as the command line writes them."""
    if isinstance(value, Path):
        return str(value)
    if name in ("config", "filters") and isinstance(value, Mapping):
        return [f"{key}={json.dumps(each)}" for key, each in value.items()]
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, list | tuple) and name not in ("config", "filters"):
        return ",".join(map(str, value))
    return value


def expanded(command: typer.core.TyperCommand, arguments: Sequence[str]) -> list[str]:
    """The arguments with the flags of a run file in place of its name, before the others, which override them."""
    file = next((each for each in arguments if not each.startswith("-")), "")
    if not file.endswith((".yaml", ".yml")):
        return list(arguments)
    place, values = arguments.index(file), read_run_file(Path(file))
    environment = values.pop("environment", None)
    if not isinstance(environment, str):
        raise InvalidInput(f"{file} names no environment")
    flags = {name: option for option in options_in(command) for name in option.opts}
    words = [environment]
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if (option := flags.get(flag)) is None:
            near = difflib.get_close_matches(flag, flags, 1)
            meant = f": do you mean {near[0].removeprefix('--').replace('-', '_')}?" if near else ""
            raise InvalidInput(f"{file}: there is no option {name!r}{meant}")
        words += words_of(option, flag, value)
    return [*arguments[:place], *words, *arguments[place + 1 :]]


def words_of(option: typer.core.TyperOption, flag: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool) and option.is_flag:
        # false: the flag's opposite, such as --no-parallel-tools; a flag without one is left out
        return [flag] if value else option.secondary_opts[:1]
    given = as_text(str(option.name), value)
    return [word for each in (given if isinstance(given, list) else [given]) for word in (flag, str(each))]


def options_in(command: typer.core.TyperCommand) -> list[typer.core.TyperOption]:
    return [each for each in command.params if isinstance(each, typer.core.TyperOption)]


def save_run_file(context: typer.Context, path: Path) -> None:
    """Write the options that the command was given as a run file. Raises InvalidInput where it can't be written."""
    command = context.command
    assert isinstance(command, typer.core.TyperCommand)
    values: dict[str, Any] = {"environment": context.params["environment"]}
    for option in options_in(command):
        name = str(option.name)
        source = context.get_parameter_source(name)
        # defaults are left out: a later version's apply to the file
        if source is not None and source.name == "COMMANDLINE" and name not in UNSAVED:
            flag = max(option.opts, key=len).removeprefix("--").replace("-", "_")
            values[flag] = as_value(name, context.params[name])
    try:
        path.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise InvalidInput(f"{path} can't be written: {error.strerror}") from error


def as_value(name: str, text: Any) -> Any:
    """The inverse of `as_text`: files have objects, not JSON in text."""
    if name in ("config", "filters"):
        pairs = (assignment.partition("=") for assignment in text)
        return {key: _parse_value(value) for key, _, value in pairs}
    if isinstance(text, Path):
        return str(text)
    if isinstance(text, StrEnum):
        return str(text)
    return _parse_value(text) if isinstance(text, str) and text.startswith("{") else text


def read_run_file(path: Path) -> dict[str, Any]:
    """The file's values. Raises InvalidInput for what is no mapping of names to values."""
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InvalidInput(f"{path} must hold names and values, one `name: value` a line")
    return values


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
