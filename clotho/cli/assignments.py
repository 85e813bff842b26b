"""Values on the command line: NAME=JSON, and JSON objects."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue, ValidationError

from clotho.errors import InvalidInput
from clotho.run_settings import RunSettings

PLUGIN_FIELD = re.compile(r"[a-z][a-z0-9_-]*\.\w+=")
"""How the assignment of a plugin's field begins: no field of a configuration has a dot in its name."""

FLAGS = {"verification_seconds": "--verify-seconds", "plugins": "--set"}
"""Flags that aren't named after their setting."""


def parse_plugin_fields(assignments: Sequence[str]) -> dict[str, JsonValue]:
    """The fields of plugins among assignments: a plugin's name -> the fields of its settings."""
    sections: dict[str, dict[str, JsonValue]] = {}
    for name, value in parse_assignments(filter(PLUGIN_FIELD.match, assignments), "--set").items():
        plugin, _, field = name.partition(".")
        sections.setdefault(plugin, {})[field] = value
    return dict(sections)


def parse_overrides(assignments: Sequence[str]) -> dict[str, JsonValue]:
    """The fields of an environment's configuration among assignments."""
    return parse_assignments((each for each in assignments if not PLUGIN_FIELD.match(each)), "--set")


def parse_assignments(assignments: Iterable[str], option: str) -> dict[str, JsonValue]:
    """`name=value` with a value in JSON, or else taken as text."""
    values: dict[str, JsonValue] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InvalidInput(f"{option} {assignment}: write NAME=VALUE")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def parse_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{name} must be a JSON object")
    return value


def flag_of(setting: str) -> str:
    """The flag of `clotho run` that gives a setting."""
    return FLAGS.get(setting) or f"--{setting.replace('_', '-')}"


def checked_settings(values: Mapping[str, Any]) -> RunSettings:
    """The settings of a run that options give. Raises InvalidInput that names the option at fault."""
    try:
        return RunSettings(**values)
    except ValidationError as error:
        faults = [f"{flag_of(str(each['loc'][0]))}: {each['msg']}" for each in error.errors()]
        raise InvalidInput("; ".join(faults)) from error
