"""The XML dialect of GLM 4.5 and later (glm45, glm47): `<tool_call>NAME` and pairs of key and value.

    <tool_call>NAME
    <arg_key>KEY</arg_key>
    <arg_value>VALUE</arg_value>
    </tool_call>

Values are kept to the letter and take the types of the tool's schema. As in vLLM, which reads both with one
parser: a call of a tool that wasn't offered is no call; an answer cut off inside a call still calls with the
arguments that were complete; text after calls is left out of the content. Unlike
vLLM, a block without a name isn't given one from its arguments.
"""

import re
from collections.abc import Iterator, Sequence

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.argument_types import is_offered, properties_of, typed
from clotho.models.tool_call_parsers.json_text import encode
from clotho.models.tool_call_parsers.markup import Block, PlainText, Segment, Unread, conclude, pairs
from clotho.models.tool_call_parsers.parser import ParsedAnswer, ParsedCall, parsed_call

CALL, CALL_END = "<tool_call>", "</tool_call>"
KEY, KEY_TO_VALUE = re.compile("<arg_key>"), re.compile(r"</arg_key>\s*<arg_value>")
VALUE_END = re.compile("</arg_value>")


class GlmParser:
    ends_reasoning = CALL

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        return conclude(_segments(text), lambda block: _call(block, tools))


def _call(block: Block, tools: Sequence[ToolSchema]) -> ParsedCall | Unread:
    name = block.name.strip()
    if not name:
        return Unread.MALFORMED
    if tools and not is_offered(tools, name):
        return Unread.UNOFFERED
    complete, cut = pairs(block.body, KEY, KEY_TO_VALUE, VALUE_END)
    values = {key.strip(): value for key, value in complete}
    arguments = encode(typed(values, properties_of(tools, name)))
    return parsed_call(name, arguments, truncated=cut or not block.text.endswith(CALL_END))


def _segments(text: str) -> Iterator[Segment]:
    position = 0
    while (start := text.find(CALL, position)) >= 0:
        yield PlainText(text[position:start])
        end = text.find(CALL_END, start)
        inside = text[start + len(CALL) : end if end >= 0 else len(text)]
        position = end + len(CALL_END) if end >= 0 else len(text)
        name, key, arguments = inside.partition(KEY.pattern)
        yield Block(name=name, body=key + arguments, text=text[start:position])
    yield PlainText(text[position:])
