"""The hermes dialect (Hermes, Qwen2.5, Qwen3): `<tool_call>{"name": …, "arguments": …}</tool_call>`.

The last closing tag is optional, and the content is the text before the first call. Unlike vLLM:

- A block that isn't a call costs only itself; vLLM gives up all calls of the answer. Both give the whole
  text as content where no block is a call.
- Arguments that are JSON text already aren't encoded again.

Text after the calls is left out of the content, as in vLLM; it is in the remainder.
"""

import re
from collections.abc import Sequence

from clotho.inference.base import ToolSchema
from clotho.inference.tool_call_parsers.base import ParsedAnswer, ParsedCall, joined
from clotho.inference.tool_call_parsers.json_text import decode, decoded_call

OPENING = "<tool_call>"


class HermesParser:
    def __init__(self, tag: str = "tool_call") -> None:
        self._block = re.compile(rf"<{tag}>(.*?)(?:</{tag}>|\Z)", re.DOTALL)

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        calls: list[ParsedCall] = []
        outside: list[str] = []
        end = 0
        for block in self._block.finditer(text):
            outside.append(text[end : block.start()])
            end = block.end()
            if call := _call(block[1]):
                calls.append(call)
            else:
                outside.append(block[0])
        if not calls:
            return ParsedAnswer(content=text)
        content, *rest = *outside, text[end:]
        return ParsedAnswer(content=content or None, calls=tuple(calls), remainder=joined(rest))


def _call(block: str) -> ParsedCall | None:
    try:
        match decode(block):
            case {"name": name, "arguments": arguments}:
                return decoded_call(name, arguments)
    except ValueError:
        pass
    return None
