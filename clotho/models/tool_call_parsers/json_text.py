"""JSON as models write it: every way in which it can't be read is a ValueError."""

import json
from typing import Any

from pydantic import JsonValue

from clotho.models.tool_call_parsers.parser import ParsedCall, parsed_call
from clotho.untrusted import require_shallow

DECODER = json.JSONDecoder()


def decode(text: str) -> Any:
    """Decode JSON as models write it. Raises ValueError."""
    try:
        return _shallow(json.loads(text))
    # the interpreter's own limit, which `require_shallow` would be too late for
    except RecursionError:
        raise ValueError("nested too deeply") from None


def decode_first(text: str, start: int = 0) -> tuple[Any, int]:
    """The value that starts at `start`, and where it ends. Raises ValueError."""
    try:
        value, end = DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _shallow(value), end


def encode(value: JsonValue, *, finite: bool = False) -> str:
    """JSON in any script. With `finite`, raises ValueError for NaN and infinities."""
    return json.dumps(value, ensure_ascii=False, allow_nan=not finite)


def _shallow(value: Any) -> Any:
    require_shallow(value)
    return value


def decoded_call(name: JsonValue, arguments: JsonValue) -> ParsedCall:
    """The call of a decoded name and arguments. Raises ValueError where `name` is no text.

    Arguments that are text already, holding an object, aren't encoded a second time.
    """
    if not isinstance(name, str):
        raise ValueError("a name is text")
    held = isinstance(arguments, str) and _holds_object(arguments)
    return parsed_call(name, str(arguments) if held else encode(arguments))


def _holds_object(text: str) -> bool:
    try:
        return isinstance(decode(text), dict)
    except ValueError:
        return False
