"""The DeepSeek V3.1 dialect: the section of V3, but each call is just a name and JSON.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

As in vLLM: a call stands on one line and its arguments aren't checked; a block of another shape is left out
of content and calls, and so is text after the section. Both are in the remainder.
"""

from collections.abc import Iterator, Sequence

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.deepseek_v3 import CALL, CALL_END, SECTION, SEPARATOR, Block, answer
from clotho.models.tool_call_parsers.parser import ParsedAnswer


class DeepSeekV31Parser:
    ends_reasoning = None

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        if SECTION not in text:
            return ParsedAnswer(content=text)
        return answer(text, tuple(_blocks(text)))


def _blocks(text: str) -> Iterator[Block]:
    line = 0
    for written in text.split("\n"):
        position = line
        while block := _first_block(text, position, line + len(written)):
            position = block.end
            yield block
        line += len(written) + 1


def _first_block(text: str, position: int, limit: int) -> Block | None:
    start = text.find(CALL, position, limit)
    separator = text.find(SEPARATOR, start + len(CALL), limit) if start >= 0 else -1
    end = text.find(CALL_END, separator + len(SEPARATOR), limit) if separator >= 0 else -1
    if end < 0:
        return None
    return Block(
        type="function",
        name=text[start + len(CALL) : separator],
        arguments=text[separator + len(SEPARATOR) : end],
        start=start,
        end=end + len(CALL_END),
    )
