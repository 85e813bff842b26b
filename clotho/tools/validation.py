"""Validation of tool arguments against JSON schemas, with messages for the model."""

import math
from collections.abc import Iterable
from typing import Any

from jsonschema import Draft202012Validator, TypeChecker
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend

from clotho.errors import InvalidInput, truncate_middle
from clotho.tools.coercion import Schema

MAX_MESSAGE_CHARS = 300
"""Characters of a message that quotes the arguments."""


def _is_finite_number(checker: TypeChecker, value: Any) -> bool:
    """JSON has no infinity, but Python reads 1e999 as one."""
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
    error = best_match(_Validator(schema).iter_errors(value))
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
    """As the model would write it: `items[0].id`."""
    joined = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return joined.removeprefix(".")


def _type_name(value: Any) -> str:
    kinds = ("null", "boolean", "integer", "number", "string", "array", "object")
    checker = _Validator.TYPE_CHECKER
    return next((kind for kind in kinds if checker.is_type(value, kind)), str(value))
