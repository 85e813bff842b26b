"""The two Mistral dialects, told apart by what follows the first `[TOOL_CALLS]`.

    [TOOL_CALLS][{"name": NAME, "arguments": {…}}, …]                     up to tokenizer version 10
    [TOOL_CALLS]NAME{…}[TOOL_CALLS]NAME{…}    or    NAME[ARGS]{…}         since version 11

vLLM goes by the tokenizer. Apart from that, as in vLLM: a call without a name is a call with an empty one, text
after the JSON is left out of the content, and

- up to version 10, entries that aren't calls are skipped, and an object alone is a call; where no call can be
  read, what follows the mark is the content;
- since version 11, arguments that aren't JSON are kept as they are, and types follow the tool's schema.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from pydantic import JsonValue

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.argument_types import properties_of, typed_text
from clotho.models.tool_call_parsers.json_text import decode, decode_first, encode
from clotho.models.tool_call_parsers.markup import Block, PlainText, Segment, Unread, conclude
from clotho.models.tool_call_parsers.parser import ParsedAnswer, ParsedCall, parsed_call

MARK = "[TOOL_CALLS]"
# possessive, so that hostile text takes linear time; the group within is atomic, since Python before 3.11.5 takes a
# possessive repeat of alternatives wrongly
AS_ARRAY = re.compile(r"\[TOOL_CALLS\](?:(?>\s|\[TOOL_CALLS\]))*+(?!\[ARGS\])[\[{]")
NAME_END = re.compile(r"\[ARGS\]|(?=\{)")


class MistralParser:
    ends_reasoning = MARK

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        start = text.find(MARK)
        if start >= 0 and AS_ARRAY.match(text, start):
            return _parse_array(text)
        return conclude(_segments(text, start), lambda block: _call(block, tools))


def _segments(text: str, start: int) -> Iterator[Segment]:
    yield PlainText(text[: start if start >= 0 else len(text)])
    while start >= 0:
        name = start + len(MARK)
        separator = NAME_END.search(text, name)
        body = separator.end() if separator else len(text)
        following = text.find(MARK, body)
        end = following if following >= 0 else len(text)
        yield Block(
            name=text[name : separator.start() if separator else end],
            body=_first_value(text[body:end]),
            text=text[start:end],
        )
        start = following


def _first_value(text: str) -> str:
    """The JSON value that `text` begins with, as written; all of the text where it begins with none."""
    start = len(text) - len(text.lstrip())
    try:
        _, end = decode_first(text, start)
    except ValueError:
        return text
    return text[start:end]


def _call(block: Block, tools: Sequence[ToolSchema]) -> ParsedCall | Unread:
    if not (block.name or block.body):
        return Unread.MALFORMED
    name = block.name.strip()
    return parsed_call(name, typed_text(block.body.strip() or "{}", properties_of(tools, name)))


def _parse_array(text: str) -> ParsedAnswer:
    content, *written = (piece.strip() for piece in text.split(MARK))
    array = next(piece for piece in written if piece)
    parsed = _array(array)
    entries = parsed if isinstance(parsed, list) else [parsed]
    calls = tuple(call for entry in entries if (call := _entry(entry)))
    if not calls:
        return ParsedAnswer(content=array, malformed=1)
    shown = text[: text.index(MARK)] if content else None
    return ParsedAnswer(content=shown, calls=calls, malformed=len(entries) - len(calls))


def _array(text: str) -> JsonValue:
    """The JSON that `text` begins with, else the array within it."""
    value: JsonValue = None
    try:
        value, _ = decode_first(text)
    except ValueError:
        with suppress(ValueError):
            value = decode(text[text.find("[{") : text.rfind("}]") + 2])
    return value


def _entry(entry: JsonValue) -> ParsedCall | None:
    if not isinstance(entry, dict) or not entry.keys() & {"name", "arguments"}:
        return None
    name, arguments = entry.get("name"), entry.get("arguments")
    written = arguments if isinstance(arguments, str) else encode({} if arguments is None else arguments)
    return parsed_call(name if isinstance(name, str) else "", written)
