"""A typed function's signature and docstring as a JSON schema, by pydantic."""

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from clotho.environment.tool_context import AsyncToolContext, ToolContext
from clotho.errors import InvalidInput
from clotho.tools.tool import Arguments

SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$", re.MULTILINE
)
ARGUMENT = re.compile(r"^(\w+)(?: \([^)]*\))?:\s*(.*(?:\n[ \t]+.*)*)", re.MULTILINE)
CONTEXTS = {ToolContext: False, AsyncToolContext: True}
"""Types of parameters that stand for the sandbox, and whether their methods are awaited."""


@dataclass(frozen=True)
class Signature:
    """A function's parameters as the model sees them, and those that it doesn't see."""

    description: str
    parameters: dict[str, JsonValue]
    model: type[BaseModel]
    contexts: Mapping[str, bool]
    """The parameters that stand for the sandbox; True: for its `async` methods."""
    field_defaults: frozenset[str] = frozenset()
    """The parameters whose default in the function is pydantic's `Field`, which only the model resolves."""

    def validated(self, arguments: Arguments) -> Arguments:
        """The arguments in the function's types; raises ValidationError."""
        accepted = self.model.model_validate(arguments)
        # only what the model gave: the function has its own defaults for the rest
        given = accepted.model_fields_set | self.field_defaults
        return {name: getattr(accepted, name) for name in self.model.model_fields if name in given}


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def signature_of(function: Callable[..., Any]) -> Signature:
    """The signature of a tool. Raises InvalidInput without a docstring, or for parameters without a JSON schema."""
    named = f"tool {function.__name__!r} ({function.__module__})"
    text = inspect.getdoc(function)
    if not text:
        raise InvalidInput(f"{named} needs a docstring: it tells the model what the tool does")
    description, described = _docstring(text)
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    contexts: dict[str, bool] = {}
    resolved: set[str] = set()
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        if hints.get(name) in CONTEXTS or (name == "ctx" and name not in hints):
            contexts[name] = CONTEXTS.get(hints.get(name, ToolContext), False)
            continue
        if (
            parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            or name not in hints
        ):
            raise InvalidInput(f"{named}: parameter {name!r} needs a name of its own and a type")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = _field(hints[name], default, described.get(name))
        if isinstance(default, FieldInfo):
            resolved.add(name)
    try:
        model = create_model("Arguments", __config__=ConfigDict(arbitrary_types_allowed=False), **fields)
        schema = model.model_json_schema(schema_generator=_Untitled)
    except PydanticUserError as error:
        raise InvalidInput(f"{named}: {error.message}") from error
    return Signature(description, _tidy_schema(schema), model, contexts, frozenset(resolved))


def _field(annotation: Any, default: Any, description: str | None) -> tuple[Any, Any]:
    if isinstance(default, FieldInfo):
        return annotation, default
    return annotation, Field(default, description=description) if description else default


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and what the section `Args:` says of each parameter."""
    description, *sections = SECTION.split(text)
    described: dict[str, str] = {}
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if title in ("Args", "Arguments", "Parameters"):
            found = ARGUMENT.findall(textwrap.dedent(body.strip("\n")))
            described = {name: " ".join(words.split()) for name, words in found}
    return description.strip(), described


def _tidy_schema(schema: dict[str, Any]) -> dict[str, JsonValue]:
    """Drop titles and put definitions in place; write `X | None` as X, since null means that it is left out."""
    definitions = schema.pop("$defs", {})
    tidied = _inline_definitions(schema, definitions, ())
    if '"#/$defs/' in json.dumps(tidied):  # a type that contains itself
        tidied["$defs"] = definitions
    tidied.setdefault("required", [])
    for name, each in tidied.setdefault("properties", {}).items():
        kinds = [kind for kind in each.get("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1 and len(each["anyOf"]) == 2:
            rest = {key: value for key, value in each.items() if key != "anyOf"}
            if rest.get("default", ...) is None:
                del rest["default"]
            tidied["properties"][name] = {**kinds[0], **rest}
    return cast(dict[str, JsonValue], tidied)


def _inline_definitions(node: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inline_definitions(each, definitions, within) for each in node]
    if not isinstance(node, dict):
        return node
    plain = {
        key: _inline_definitions(each, definitions, within) for key, each in node.items() if key != "$ref"
    }
    # below `properties`, an argument called title is a schema and no string
    if isinstance(plain.get("title"), str) and "type" in plain:
        del plain["title"]
    name = str(node.get("$ref", "")).rpartition("/")[2]
    if not name or name in within:
        return {**plain, "$ref": node["$ref"]} if name else plain
    return {**_inline_definitions(definitions[name], definitions, (*within, name)), **plain}
