"""Arguments as models write them: parsed, coerced to the types of a tool's JSON schema, validated against it."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, TypeChecker
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend

from clotho.errors import InvalidInput
from clotho.escaping import truncate_middle
from clotho.tools.tool import Arguments
from clotho.untrusted import Unreadable, load_json

Schema = Mapping[str, Any]

INTEGER = re.compile(r"[+-]?\d+(\.0*)?")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
BOOLEANS = {"true": True, "false": False}
MAX_MESSAGE_CHARS = 300
"""Characters of a message that quotes the arguments."""
MAX_CHARS = 2_000_000
"""Characters of one call's arguments."""
MAX_VALUES = 10_000
"""Values in them, those of JSON within JSON included: checking one takes up to ten microseconds."""
MAX_VIOLATIONS = 100
"""Violations among which the most telling one is looked for."""


def parsed_arguments(text: str) -> Arguments:
    """The arguments that `text` holds; none at all mean no arguments. Raises ValueError for anything else."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"it has more than {MAX_CHARS:,} characters")
    arguments = load_json(text or "{}", MAX_VALUES)
    if not isinstance(arguments, dict):
        raise ValueError(f"expected an object, not {type(arguments).__name__}")
    require_text(arguments)
    return arguments


def require_text(value: Any) -> None:
    """Raise ValueError for halves of characters, which no file or request can hold."""
    json.dumps(value, ensure_ascii=False).encode()


def coerce(value: Any, schema: Schema) -> Any:
    """`value` in the type that `schema` asks for where its meaning is plain, else unchanged."""
    return _Coercion().coerce(value, schema)


class _Coercion:
    """Coercion of one call's arguments. It bounds the values that it reads of JSON within JSON."""

    def __init__(self) -> None:
        self._values_left = MAX_VALUES

    def coerce(self, value: Any, schema: Schema) -> Any:
        match schema.get("type"), value:
            case "object", str() | dict():
                return self._object(self._parsed(value, dict), schema)
            case "array", _:
                items = self._parsed(value, list)
                items = items if isinstance(items, list) else [items]
                # a single value is meant as a list of one
                return [self.coerce(item, schema.get("items", {})) for item in items]
        return _coerce_scalar(value, schema)

    def _object(self, value: Any, schema: Schema) -> Any:
        """Drop null, and "null" for a property that isn't text: models write it for what they leave out."""
        if not isinstance(value, dict):
            return value
        known = schema.get("properties", {})
        return {
            name: self.coerce(item, known.get(name, {}))
            for name, item in value.items()
            if not (
                item is None or (item == "null" and known.get(name, {}).get("type", "string") != "string")
            )
        }

    def _parsed(self, value: Any, kind: type) -> Any:
        """The object or array that a JSON string stands for, or `value`."""
        if not isinstance(value, str):
            return value
        try:
            parsed = load_json(value, self._values_left)
        except Unreadable:
            return value
        # a bound on its values that needs no walk: each but the first follows one of these characters
        self._values_left -= value.count(",") + value.count("[") + value.count("{")
        return parsed if isinstance(parsed, kind) else value


def _coerce_scalar(value: Any, schema: Schema) -> Any:
    match schema.get("type"), value:
        # len: int() raises ValueError beyond 4,300 digits
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


def _is_finite_number(checker: TypeChecker, value: Any) -> bool:
    """JSON has no infinity, but Python reads 1e999 as one."""
    if isinstance(value, int):  # one too large for a float is a number too, and isfinite fails for it
        return not isinstance(value, bool)
    return Draft202012Validator.TYPE_CHECKER.is_type(value, "number") and math.isfinite(value)


_Validator: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("number", _is_finite_number),
)


def check_schema(name: str, schema: Schema) -> None:
    """Raises InvalidInput where the parameters of tool `name` are no JSON schema."""
    try:
        _Validator.check_schema(schema)
    except SchemaError as error:
        raise InvalidInput(f"the parameters of tool {name!r} are no JSON schema: {error.message}") from error


def violation(value: Any, schema: Schema) -> str | None:
    """The most telling way in which `value` breaks `schema`, in words for the model, or None."""
    error = best_match(islice(_Validator(schema).iter_errors(value), MAX_VIOLATIONS))
    return None if error is None else _described(error)


def _described(error: ValidationError) -> str:
    name = _joined(error.absolute_path)
    subject = f"argument '{name}'" if name else "arguments"
    rule: Any = error.validator_value
    given: Any = error.instance
    match error.validator:
        case "required":
            missing = next(key for key in rule if key not in given)
            return f"missing required argument '{_joined((*error.absolute_path, missing))}'"
        case "type":
            wanted = rule if isinstance(rule, str) else " or ".join(rule)
            return f"{subject} must be of type {wanted}, not {_type_name(given)}"
        case "enum":
            return f"{subject} must be one of {', '.join(map(str, rule))}"
        case "minimum":
            return f"{subject} must be at least {rule}"
        case "maximum":
            return f"{subject} must be at most {rule}"
    return f"{subject}: {truncate_middle(error.message, MAX_MESSAGE_CHARS)}"


def _joined(path: Iterable[str | int]) -> str:
    """The path as the model would write it: `items[0].id`."""
    joined = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return joined.removeprefix(".")


def _type_name(value: Any) -> str:
    kinds = ("null", "boolean", "integer", "number", "string", "array", "object")
    checker = _Validator.TYPE_CHECKER
    return next((kind for kind in kinds if checker.is_type(value, kind)), str(value))
