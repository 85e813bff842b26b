"""JSON schemas of tools' parameters."""

from collections.abc import Sequence

from pydantic import JsonValue

Schema = dict[str, JsonValue]


def object_schema(*required: str, **properties: Schema) -> Schema:
    """The schema of an object with these properties."""
    return {"type": "object", "properties": {**properties}, "required": [*required]}


def string(description: str, one_of: Sequence[str] = (), **more: JsonValue) -> Schema:
    enum: Schema = {"enum": [*one_of]} if one_of else {}
    return {"type": "string", **enum, "description": description, **more}


def integer(description: str, **more: JsonValue) -> Schema:
    return {"type": "integer", "description": description, **more}


def boolean(description: str, **more: JsonValue) -> Schema:
    return {"type": "boolean", "description": description, **more}
