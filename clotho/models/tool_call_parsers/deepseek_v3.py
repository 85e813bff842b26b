"""The DeepSeek V3 and R1 dialect: a marked section of calls, each a type, a name and fenced JSON.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME
    ```json
    {…}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

As in vLLM: arguments stand on one line and aren't checked; a block of another shape is left out of content
and calls, and so is text after the section (both are in the remainder); a call whose type isn't `function`
makes the whole answer content.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.parser import ParsedAnswer, joined, parsed_call

SECTION, SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
FENCE, FENCE_END = "\n```json\n", "\n```" + CALL_END


@dataclass(frozen=True)
class Block:
    """One call in an answer, at [start, end)."""

    type: str
    name: str
    arguments: str
    start: int
    end: int


class DeepSeekV3Parser:
    ends_reasoning = None

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        blocks = tuple(_blocks(text))
        foreign = sum(block.type != "function" for block in blocks)
        if SECTION not in text or foreign:
            return ParsedAnswer(content=text, malformed=foreign)
        return answer(text, blocks)


def answer(text: str, blocks: Sequence[Block]) -> ParsedAnswer:
    """What an answer with a section comes to: its content ends where the section begins."""
    section = text.index(SECTION)
    starts = (*(block.start for block in blocks), len(text))
    ends = (0, *(block.end for block in blocks))
    gaps = [text[max(end, section) : start] for end, start in zip(ends, starts, strict=True)]
    return ParsedAnswer(
        content=text[:section] or None,
        calls=tuple(parsed_call(block.name, block.arguments) for block in blocks),
        remainder=joined(gap.replace(SECTION, "").replace(SECTION_END, "") for gap in gaps),
        malformed=sum(gap.count(CALL) for gap in gaps),
    )


def _blocks(text: str) -> Iterator[Block]:
    end = 0
    fence = text.find(FENCE)
    while fence >= 0:
        if block := _block_at(text, fence, end):
            end = block.end
            yield block
        fence = text.find(FENCE, fence + 1)


def _block_at(text: str, fence: int, earliest: int) -> Block | None:
    """The block whose JSON is fenced at `fence`: its head is the line before, its arguments the one after."""
    start = text.find(CALL, max(earliest, text.rfind("\n", 0, fence) + 1), fence)
    separator = text.rfind(SEPARATOR, start + len(CALL), fence) if start >= 0 else -1
    arguments = fence + len(FENCE)
    arguments_end = text.find("\n", arguments)
    if separator < 0 or not text.startswith(FENCE_END, arguments_end):
        return None
    return Block(
        type=text[start + len(CALL) : separator],
        name=text[separator + len(SEPARATOR) : fence],
        arguments=text[arguments:arguments_end],
        start=start,
        end=arguments_end + len(FENCE_END),
    )
