"""Arguments as models write them, brought to the types of a tool's JSON schema, and checked against it.

Only what Clotho's tool schemas use is understood: type, enum, minimum, maximum, items, properties, required.
"""

import json
import math
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


def violation(value: Any, schema: Schema, name: str = "") -> str | None:
    """The first way in which `value` breaks `schema`, in words for the model, or None."""
    subject = f"argument '{name}'" if name else "arguments"
    expected = schema.get("type")
    if expected is not None and not _has_type(value, expected):
        return f"{subject} must be of type {expected}, not {_type_name(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{subject} must be one of {', '.join(map(str, schema['enum']))}"
    if "minimum" in schema and value < schema["minimum"]:
        return f"{subject} must be at least {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        return f"{subject} must be at most {schema['maximum']}"
    if expected == "object":
        return _violation_in_object(value, schema, name)
    if expected == "array":
        found = (violation(item, schema.get("items", {}), f"{name}[{i}]") for i, item in enumerate(value))
        return next((problem for problem in found if problem), None)
    return None


def _violation_in_object(value: dict[str, Any], schema: Schema, name: str) -> str | None:
    for required in schema.get("required", ()):
        if required not in value:
            return f"missing required argument '{_joined(name, required)}'"
    known = schema.get("properties", {})
    found = (violation(value[key], known[key], _joined(name, key)) for key in known if key in value)
    return next((problem for problem in found if problem), None)


def _joined(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def _has_type(value: Any, expected: str) -> bool:
    """JSON's view: true is no number, and neither is infinity."""
    if isinstance(value, bool):
        return expected == "boolean"
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, TYPES[expected])


def _type_name(value: Any) -> str:
    return next((name for name in ("boolean", "integer", *TYPES) if _has_type(value, name)), str(value))
