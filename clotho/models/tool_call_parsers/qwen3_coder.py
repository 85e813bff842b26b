"""The XML dialect of Qwen3-Coder and of Qwen from 3.5 on.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

Values lose one newline at each end and take the types of the tool's schema. As in vLLM: `<tool_call>` may be
missing, an answer cut off inside a call still calls with the parameters that were complete, and text between
and after calls is left out of the content.

Unlike vLLM, a function without a name isn't given one from its parameters.
"""

import re
from collections.abc import Iterator, Sequence

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.argument_types import properties_of, typed
from clotho.models.tool_call_parsers.json_text import encode
from clotho.models.tool_call_parsers.markup import (
    Block,
    EmptyCall,
    Opening,
    PlainText,
    Segment,
    Unread,
    conclude,
    pairs,
)
from clotho.models.tool_call_parsers.parser import ParsedAnswer, ParsedCall, parsed_call

CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
IN_PROSE = re.compile(f"{CALL}|{FUNCTION}")
IN_CALL = re.compile(f"{CALL_END}|{FUNCTION}")
AFTER_FUNCTION = re.compile(f"{CALL}|{CALL_END}|{FUNCTION}")
TAG_IN_NAME = re.compile(f"</?think>|</?tool_call>|</parameter>|{FUNCTION_END}|>")
PARAMETER = re.compile(r"<\s*parameter\s*=\s*")
NAME_END = re.compile(">")
PARAMETER_END = re.compile(rf"<\s*/\s*parameter\s*>|{PARAMETER.pattern}")
"""One ends at its closing tag or at the next one."""


class Qwen3CoderParser:
    ends_reasoning = CALL

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        return conclude(_segments(text), lambda block: _call(block, tools))


def _call(block: Block, tools: Sequence[ToolSchema]) -> ParsedCall | Unread:
    if not (name := block.name.strip()):
        return Unread.MALFORMED
    complete, cut = pairs(block.body, PARAMETER, NAME_END, PARAMETER_END)
    values = {key: value.removeprefix("\n").removesuffix("\n") for key, value in complete}
    arguments = encode(typed(values, properties_of(tools, name)))
    return parsed_call(name, arguments, truncated=cut or not block.text.endswith(FUNCTION_END))


def _segments(text: str) -> Iterator[Segment]:
    position, expected = 0, IN_PROSE
    while tag := expected.search(text, position):
        if expected is IN_PROSE:
            yield PlainText(text[position : tag.start()])
        elif expected is IN_CALL and tag[0] == CALL_END:
            yield EmptyCall()
        position = tag.end()
        if tag[0] == CALL:
            yield Opening()
            expected = IN_CALL
        elif tag[0] == CALL_END:
            expected = IN_PROSE
        else:
            block = _function(text, tag.start(), position)
            yield block
            position = tag.start() + len(block.text)
            expected = AFTER_FUNCTION
    if expected is IN_PROSE:
        yield PlainText(text[position:])
    elif expected is IN_CALL:
        yield EmptyCall()


def _function(text: str, start: int, name: int) -> Block:
    """The function that starts at `start`, up to its closing tag or the end of the text."""
    tags = TAG_IN_NAME.finditer(text, name)
    tag = next((tag for tag in tags if tag[0] in (">", FUNCTION_END)), None)
    if tag is None:
        return Block(name=text[name:], body="", text=text[start:])
    if tag[0] == FUNCTION_END:
        return Block(name=text[name : tag.start()], body="", text=text[start : tag.end()])
    closing = text.find(FUNCTION_END, tag.end())
    body_end, end = (closing, closing + len(FUNCTION_END)) if closing >= 0 else (len(text), len(text))
    return Block(name=text[name : tag.start()], body=text[tag.end() : body_end], text=text[start:end])
