"""Values on the command line: NAME=JSON, and JSON objects."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue, ValidationError

from clotho.errors import InvalidInput
from clotho.run_settings import RunSettings


def parse_overrides(assignments: Sequence[str], option: str = "--set") -> dict[str, JsonValue]:
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


def checked_settings(values: Mapping[str, Any]) -> RunSettings:
    """The settings of a run that options give. Raises InvalidInput that names the option at fault."""
    try:
        return RunSettings(**values)
    except ValidationError as error:
        faults = [f"--{str(each['loc'][0]).replace('_', '-')}: {each['msg']}" for each in error.errors()]
        raise InvalidInput("; ".join(faults)) from error
