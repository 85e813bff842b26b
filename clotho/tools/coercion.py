"""Coercion of arguments as models write them to the types of a tool's JSON schema."""

import json
import re
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

INTEGER = re.compile(r"[+-]?\d+(\.0*)?")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
BOOLEANS = {"true": True, "false": False}


def coerce(value: Any, schema: Schema) -> Any:
    """`value` in the type that `schema` asks for where its meaning is plain, else unchanged."""
    match schema.get("type"), value:
        case "object", str() | dict():
            return _coerce_object(_parsed(value, dict), schema)
        case "array", _:
            items = _parsed(value, list)
            items = items if isinstance(items, list) else [items]
            return [coerce(item, schema.get("items", {})) for item in items]
        case "integer", str() if INTEGER.fullmatch(value.strip()) and len(value) < 20:
            return int(value.strip().partition(".")[0])
        case "integer", float() if value.is_integer():
            return int(value)
        case "number", str() if NUMBER.fullmatch(value.strip()) and len(value) < 40:
            return float(value)
        case "boolean", str():
            return BOOLEANS.get(value.strip().lower(), value)
        case "string", int() | float() if not isinstance(value, bool):
            return str(value)
    return value


def _parsed(value: Any, kind: type) -> Any:
    """The object or array that a JSON string stands for, or `value`."""
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed if isinstance(parsed, kind) else value


def _coerce_object(value: Any, schema: Schema) -> Any:
    """Null means absent for whatever isn't text, spelled as null or as "null"."""
    if not isinstance(value, dict):
        return value
    known = schema.get("properties", {})
    return {
        name: coerce(item, known.get(name, {}))
        for name, item in value.items()
        if not (item is None or (item == "null" and known.get(name, {}).get("type", "string") != "string"))
    }
