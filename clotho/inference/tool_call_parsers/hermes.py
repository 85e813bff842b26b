"""The hermes dialect: `<tool_call>{"name": …, "arguments": …}</tool_call>`, the last tag optional."""

import json
import re

from clotho.inference.base import FunctionCall

OPENING = "<tool_call>"
BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def parse(text: str) -> tuple[str | None, tuple[FunctionCall, ...]]:
    """The text before the first call, and the calls; all of the text and no calls if none can be read.

    A block that isn't a call is left out and the others are kept.
    """
    calls = tuple(call for block in BLOCK.findall(text) if (call := _call(block)) is not None)
    if not calls:
        return text, ()
    return text[: text.index(OPENING)] or None, calls


def _call(block: str) -> FunctionCall | None:
    try:
        parsed = json.loads(block)
    except ValueError:
        return None
    match parsed:
        case {"name": str(name), "arguments": str(arguments)}:
            return FunctionCall(name=name, arguments=arguments)
        case {"name": str(name), "arguments": arguments}:
            return FunctionCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False))
    return None
