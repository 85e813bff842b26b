"""Arguments brought to the types of a tool's schema, by vLLM's rules.

Dialects that write arguments as bare text know no types: the schema alone says whether `5` is a number.
"""

import math
from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.json_text import decode, encode

SPELLINGS = {
    **dict.fromkeys(("str", "text", "varchar", "char", "enum"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "uint", "uint32", "uint64"), "integer"),
    **dict.fromkeys(("long", "short", "unsigned"), "integer"),
    **dict.fromkeys(("float", "float32", "float64", "double"), "number"),
    "bool": "boolean",
    "dict": "object",
    **dict.fromkeys(("arr", "list", "sequence"), "array"),
}
TYPES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
}
"""JSON types of Python's; any other is an object."""
TRUE, FALSE = ("true", "1"), ("false", "0")


def is_offered(tools: Sequence[ToolSchema], name: str) -> bool:
    return _function(tools, name) is not None


def properties_of(tools: Sequence[ToolSchema], name: str) -> dict[str, Any]:
    """The schemas of a tool's arguments; empty for a tool that wasn't offered, or declares none."""
    parameters = (_function(tools, name) or {}).get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return properties if isinstance(properties, dict) else {}


def typed(arguments: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    """`arguments`, each in the first type of its schema that its text can be read as."""
    return {
        name: _value(value, schema) if isinstance(schema := properties.get(name), dict) else value
        for name, value in arguments.items()
    }


def typed_text(arguments: str, properties: dict[str, Any]) -> str:
    """The JSON text `arguments` with its types corrected; as it is where nothing needs correcting."""
    if not properties:
        return arguments
    try:
        sampled = decode(arguments)
        if not isinstance(sampled, dict):
            return arguments
        corrected = encode(typed(sampled, properties))
        # what needs no correction stays as the model wrote it, white space included
        return arguments if corrected == encode(sampled) else corrected
    except ValueError:
        return arguments


def _function(tools: Sequence[ToolSchema], name: str) -> dict[str, Any] | None:
    functions = (tool.get("function") for tool in tools)
    return next((each for each in functions if isinstance(each, dict) and each.get("name") == name), None)


def _value(value: Any, schema: dict[str, Any]) -> Any:
    match value:
        case str():
            return _read(value, _types(schema))
        case dict():
            nested = schema.get("properties")
            return typed(value, nested) if isinstance(nested, dict) else value
        case list():
            items = schema.get("items")
            return [_value(item, items) for item in value] if isinstance(items, dict) else value
    return _read(encode(value), _types(schema))


def _types(schema: Any) -> set[str]:
    """The JSON types that `schema` allows; text where it names none."""
    if not isinstance(schema, dict):
        return {"string"}
    named = schema.get("type")
    types = {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}
    if isinstance(values := schema.get("enum"), list):
        types.update(TYPES.get(type(value), "object") for value in values)
    for combination in ("anyOf", "oneOf", "allOf"):
        if isinstance(choices := schema.get(combination), list):
            types.update(*map(_types, choices))
    types = {spelling.strip().lower() for spelling in types}
    return {SPELLINGS.get(spelling, spelling) for spelling in types} or {"string"}


def _read(text: str, types: set[str]) -> JsonValue:
    if "null" in types and text.lower() == "null":
        return None
    if "integer" in types and (integer := _integer(text)) is not None:
        return integer
    if "number" in types and (number := _number(text)) is not None:
        return number
    if "boolean" in types and (lower := text.lower().strip()) in TRUE + FALSE:
        return lower in TRUE
    if "string" in types and not types & {"object", "array"}:
        return text
    return _json(text)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number == int(number) else number


def _json(text: str) -> JsonValue:
    """The value that `text` holds, or `text` itself, also if the value can't be written as JSON again."""
    try:
        value: JsonValue = decode(text)
        # Python reads NaN and Infinity, which no other reader of JSON takes
        encode(value, finite=True)
    except ValueError:
        return text
    return value
