"""Errors in the words of the OpenAI API, which its two dialects share."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from clotho.plugins.harness.dialects.canonical import InvalidRequest
from clotho.plugins.harness.dialects.dialect import ErrorKind
from clotho.plugins.harness.dialects.reading import SHOWN_CHARACTERS, Place

CODES: Mapping[ErrorKind, str | None] = {
    "invalid_request": None,
    "context_overflow": "context_length_exceeded",
    "limit_reached": "insufficient_quota",
    "not_found": None,
    "unauthorized": "invalid_api_key",
}
OVERFLOW = "This model's maximum context length is exceeded. Please reduce the length of the messages."
"""litellm knows an overflow by these words, opencode by the code."""
ARTICLES = {"array": "an", "integer": "an", "object": "an"}


class OpenAIWords:
    def malformed(self, why: str) -> str:
        return f"We could not parse the JSON body of your request: {why}."

    def missing(self, at: Place) -> str:
        return f"Missing required parameter: '{place(at)}'."

    def empty(self, at: Place) -> str:
        wanted = "Expected an array with minimum length 1, but got an empty array instead."
        return f"Invalid '{place(at)}': empty array. {wanted}"

    def wrong_type(self, at: Place, expected: Sequence[str], value: object) -> str:
        wanted = " or ".join(_with_article(name) for name in expected)
        return f"Invalid type for '{place(at)}': expected {wanted}, but got {_type_name(value)} instead."

    def unsupported(self, at: Place, value: str, supported: Sequence[str]) -> str:
        return f"Invalid value: '{value}'. Supported values for '{place(at)}' are: {', '.join(supported)}."

    def other(self, at: Place, why: str) -> str:
        return f"Invalid '{place(at)}': {why}."


def place(at: Place) -> str:
    """`messages[0].role` for ("messages", 0, "role")."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in at)
    return "".join(steps).removeprefix(".")


def refuse_parameter(name: str) -> InvalidRequest:
    return InvalidRequest(f"Unsupported parameter: '{name}' is not supported with this model.")


def not_found(what: str, id: JsonValue) -> InvalidRequest:
    """The refusal of a reference to what an earlier response left: the gateway keeps no responses."""
    return InvalidRequest(f"{what} with id '{str(id)[:SHOWN_CHARACTERS]}' not found.", status=404)


def error_object(status: int, kind: ErrorKind, message: str) -> dict[str, JsonValue]:
    """The `error` of a response's body."""
    type = "insufficient_quota" if kind == "limit_reached" else "invalid_request_error"
    return {
        "message": f"{OVERFLOW} {message}" if kind == "context_overflow" else message,
        "type": "server_error" if status >= 500 else type,
        "param": None,
        "code": CODES[kind],
    }


def _with_article(name: str) -> str:
    return f"{ARTICLES.get(name, 'a')} {name}"


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "decimal", str: "string", list: "array", dict: "object"}
    return _with_article(names[type(value)])
