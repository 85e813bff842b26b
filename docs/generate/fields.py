"""Fields of settings as rows of a table: their type, default and description."""

import ast
import inspect
import json
import os
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

NAMES: dict[Any, str] = {int: "integer", float: "number", str: "text", bool: "true or false", Path: "path"}


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(header), ["---"] * len(list(header)), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def described_fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo, str]]:
    """Name, field and description of each value that `model` itself declares.

    Raises LookupError for one without a description.
    """
    docstrings = _docstrings(model)
    for name in inspect.get_annotations(model):
        field = model.model_fields.get(name)
        if field is None or section_of(field) is not None:
            continue
        description = field.description or docstrings.get(name)
        if not description:
            raise LookupError(f"{model.__name__}.{name} has no description")
        yield name, field, " ".join(description.split())


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that holds further fields."""
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def default(field: FieldInfo) -> str:
    """The default as YAML has it, or that a value is required; empty for none."""
    return "required" if field.is_required() else code(shown(field.get_default(call_default_factory=True)))


def shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case Enum():
            return str(value.value)
        case Path():
            return str(value).replace(f"clotho-{os.getuid()}", "clotho-UID")
        case dict():
            return json.dumps(value) if value else ""
        case tuple() | list():
            return ", ".join(map(shown, value))
    return str(value)


def kind(annotation: Any) -> str:
    """The type of a value, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        kinds = [kind(each) for each in arguments if each is not type(None)]
        return next((each for each in kinds if each != "text"), kinds[0])
    if origin is Literal:
        return ", ".join(map(code, arguments))
    if origin in (tuple, list):
        return "list"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(code(str(each.value)) for each in annotation)
    if origin is not None:
        return kind(arguments[0])
    return NAMES.get(annotation, "JSON")


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The string literals below the fields of `model`; a model that a function made has none of its own."""
    if model.__module__.startswith("clotho.") and model.__qualname__ not in vars(
        sys.modules[model.__module__]
    ):
        return {}
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    pairs = zip(definition.body, definition.body[1:], strict=False)
    return {
        field.target.id: text.value.value
        for field, text in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
