"""JSON as models write it: every way in which it can't be read, or written again, is a ValueError."""

import json
import re
from typing import Any

from pydantic import JsonValue

from clotho.inference.base import FunctionCall

SURROGATE = re.compile(r"[\ud800-\udfff]")
DECODER = json.JSONDecoder()


def decode(text: str) -> Any:
    """Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def decode_first(text: str, start: int = 0) -> tuple[Any, int]:
    """The value that starts at `start`, and where it ends. Raises ValueError."""
    try:
        return DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode(value: JsonValue, *, finite: bool = False) -> str:
    """`value` as JSON in valid Unicode. Raises ValueError; `finite` also for NaN and infinities."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=not finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return json.dumps(value) if SURROGATE.search(text) else text


def function_call(name: JsonValue, arguments: JsonValue) -> FunctionCall:
    """Raises ValueError where `name` is no text.

    Arguments that are text already, holding an object, aren't encoded a second time.
    """
    text = arguments if isinstance(arguments, str) and _holds_object(arguments) else encode(arguments)
    return FunctionCall.model_validate({"name": name, "arguments": text}, strict=True)


def _holds_object(text: str) -> bool:
    try:
        return isinstance(decode(text), dict)
    except ValueError:
        return False
