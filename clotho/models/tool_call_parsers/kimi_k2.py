"""The Kimi K2 dialect: a marked section of calls, each headed by an id that holds the name.

    <|tool_calls_section_begin|>
    <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>
    <|tool_calls_section_end|>

Ids are kept as written. Arguments take the types of the tool's schema; what isn't JSON is kept as it is. As in
vLLM: an answer cut off inside a call still calls; a call whose head has no number is named by a `name` among
its arguments, or by the head if it has no arguments; text after the section is left out of the content.
"""

import re
from collections.abc import Iterator, Sequence

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.argument_types import properties_of, typed_text
from clotho.models.tool_call_parsers.markup import Block, PlainText, Segment, Unread, conclude
from clotho.models.tool_call_parsers.parser import ParsedAnswer, ParsedCall, parsed_call

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
END = re.compile(rf"{re.escape(CALL_END)}|{re.escape(SECTION_END)}|\Z")
IDENTIFIER = re.compile(r".+:\d+")
NAME_IN_ARGUMENTS = re.compile(r'"name"\s*:\s*"([^"]*)"')


class KimiK2Parser:
    ends_reasoning = SECTION

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        return conclude(_segments(text), lambda block: _call(block, tools), trims=False)


def _call(block: Block, tools: Sequence[ToolSchema]) -> ParsedCall | Unread:
    head = block.name.strip()
    id, name = _identity(head)
    if not name and block.body and (named := NAME_IN_ARGUMENTS.search(block.body)):
        head = named[1].strip()
        id, name = _identity(head)
    elif not name and block.body:
        return Unread.MALFORMED
    if not (name := name or head):
        return Unread.MALFORMED
    arguments = typed_text(block.body.strip() or "{}", properties_of(tools, name))
    return parsed_call(name, arguments, id, truncated=not block.text.endswith((CALL_END, SECTION_END)))


def _identity(head: str) -> tuple[str | None, str]:
    """The id and the name of a call whose `head` is an id; None and no name for any other head."""
    identifier = IDENTIFIER.match(head)
    name = identifier[0].partition(":")[0].removeprefix("functions.").strip() if identifier else ""
    return (identifier[0].strip(), name) if identifier and name else (None, "")


def _segments(text: str) -> Iterator[Segment]:
    prose, section, _ = text.partition(SECTION)
    yield PlainText(prose)
    position = len(prose) + len(section)
    while (start := text.find(CALL, position)) >= 0:
        block = _block(text, start)
        yield block
        position = start + len(block.text)


def _block(text: str, start: int) -> Block:
    """The call that starts at `start`, up to its closing mark or the end of the text."""
    name = start + len(CALL)
    arguments = text.find(ARGUMENTS, name)
    if arguments < 0:
        return Block(name=text[name:], body="", text=text[start:])
    body = arguments + len(ARGUMENTS)
    end = END.search(text, body)
    assert end is not None
    written = text[start : end.end()]
    return Block(name=text[name:arguments], body=text[body : end.start()], text=written)
