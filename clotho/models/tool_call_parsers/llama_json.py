"""The dialect of Llama 3 and 4 (llama3_json, llama4_json): bare `{"name": …, "parameters": …}` objects.

Nothing marks a call, so every `{` outside the objects before it must begin one. As in vLLM, an answer in
which one doesn't is content only, text around calls is left out of the content, and an object that touches
the one before it isn't looked at as a whole: calls need a separator.

Unlike vLLM, arguments that are JSON text already aren't encoded again.
"""

from collections.abc import Sequence

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.json_text import decode_first, decoded_call
from clotho.models.tool_call_parsers.parser import ParsedAnswer, ParsedCall

MARKER = "<|python_tag|>"
SEPARATORS = " \t\r\n;"


class LlamaJsonParser:
    ends_reasoning = None

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        calls: list[ParsedCall] = []
        end = 0
        start = text.find("{")
        before = text[: max(start, 0)].replace(MARKER, "").strip(SEPARATORS)
        while start >= 0:
            try:
                call, end = _call_at(text, start)
            except ValueError:
                # a brace in the middle of prose is no call that went wrong
                begun = bool(calls) or not before
                return ParsedAnswer(content=text or None, malformed=int(begun))
            calls.append(call)
            start = text.find("{", end + 1)
        if not calls:
            return ParsedAnswer(content=text)
        return ParsedAnswer(content=None, calls=tuple(calls))


def _call_at(text: str, start: int) -> tuple[ParsedCall, int]:
    parsed, end = decode_first(text, start)
    match parsed:
        case {"name": name, "arguments": arguments} | {"name": name, "parameters": arguments}:
            return decoded_call(name, arguments), end
    raise ValueError("not a call")
