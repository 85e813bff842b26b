"""The hermes dialect (Hermes, Qwen2.5, Qwen3): `<tool_call>{"name": …, "arguments": …}</tool_call>`.

The last closing tag is optional, and the content is the text before the first call. Unlike vLLM:

- A block that isn't a call stays in the content, and costs only itself; vLLM gives up all calls of the answer.
  Both give the whole text as content where no block is a call.
- A closing tag within the JSON, such as a command may hold, doesn't end it.
- Arguments that are JSON text already aren't encoded again.

Text after the calls is left out of the content, as in vLLM.
"""

import re
from collections.abc import Sequence
from typing import Any

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.json_text import decode_first, decoded_call
from clotho.models.tool_call_parsers.parser import ParsedAnswer, ParsedCall

OPENING = "<tool_call>"


class HermesParser:
    def __init__(self, tag: str = "tool_call", *, ends_reasoning: bool = False) -> None:
        self.ends_reasoning = f"<{tag}>" if ends_reasoning else None
        self._opening = re.compile(rf"<{tag}>[ \t\r\n]*")
        self._closing = re.compile(rf"[ \t\r\n]*(?:</{tag}>|\Z)")
        self._end = re.compile(rf"</{tag}>|\Z")

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        calls: list[ParsedCall] = []
        malformed: list[str] = []
        end = 0
        while opening := self._opening.search(text, end):
            call, end = self._block(text, opening.end())
            if call:
                calls.append(call)
            else:
                malformed.append(text[opening.start() : end].strip())
        if not calls:
            return ParsedAnswer(content=text, malformed=len(malformed))
        prose = self._opening.split(text, 1)[0]
        content = "\n".join((prose.rstrip(), *malformed)).lstrip("\n") if malformed else prose
        return ParsedAnswer(content=content or None, calls=tuple(calls), malformed=len(malformed))

    def _block(self, text: str, start: int) -> tuple[ParsedCall | None, int]:
        """The call that is written at `start`, if one is, and where its block ends."""
        try:
            parsed, end = decode_first(text, start)
            if closing := self._closing.match(text, end):
                return _call(parsed), closing.end()
        except ValueError:
            pass
        # from the start of the block: JSON that can't be read has no end of its own
        malformed = self._end.search(text, start)
        assert malformed is not None
        return None, malformed.end()


def _call(parsed: Any) -> ParsedCall | None:
    match parsed:
        case {"name": str(name), "arguments": arguments}:
            return decoded_call(name, arguments)
    return None
