"""The options of a run as values: of a YAML file, or of the Python API's arguments. Their names are the flags'."""

import difflib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from clotho.cli.run_options import RunOptions
from clotho.errors import InvalidInput

ALIASES = {"set": "config", "filter": "filters"}
"""Names of flags that differ from their fields."""
COMMAND = ("environment", "run", "model", "groups", "group_size", "max_open_groups", "items", "priority")
"""Arguments of `clotho run` beside RunOptions."""
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


def as_value(name: str, text: Any) -> Any:
    """What `as_text` was made of: files have objects, not JSON in text."""
    if name in ("config", "filters"):
        pairs = (assignment.partition("=") for assignment in text)
        return {key: _parsed(value) for key, _, value in pairs}
    if isinstance(text, Path):
        return str(text)
    return _parsed(text) if isinstance(text, str) and text.startswith("{") else text


def read_run_file(path: Path) -> dict[str, Any]:
    """The file's values. Raises InvalidInput for what is no mapping of names to values."""
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InvalidInput(f"{path} must hold names and values, one `name: value` a line")
    return values


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
