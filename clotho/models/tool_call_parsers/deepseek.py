"""The DeepSeek dialects: a marked section of calls.

In that of V3 and R1, each is a type, a name and fenced JSON; in that of V3.1, just a name and JSON.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME
    ```json
    {…}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

As in vLLM: arguments of V3, and whole calls of V3.1, stand on one line and aren't checked; a block of another shape
is left out of content and calls, and so is text after the section; a call of V3 whose
type isn't `function` makes the whole answer content.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers.parser import ParsedAnswer, parsed_call

SECTION, SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
FENCE, FENCE_END = "\n```json\n", "\n```" + CALL_END


@dataclass(frozen=True)
class _Block:
    """One call in an answer, at [start, end)."""

    type: str
    name: str
    arguments: str
    start: int
    end: int


class DeepSeekV3Parser:
    ends_reasoning = None

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        blocks = tuple(_fenced_blocks(text))
        foreign = sum(block.type != "function" for block in blocks)
        if SECTION not in text or foreign:
            return ParsedAnswer(content=text, malformed=foreign)
        return _answer(text, blocks)


class DeepSeekV31Parser:
    ends_reasoning = None

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        if SECTION not in text:
            return ParsedAnswer(content=text)
        return _answer(text, tuple(_bare_blocks(text)))


def _answer(text: str, blocks: Sequence[_Block]) -> ParsedAnswer:
    """The parsed answer: its content ends where the section begins."""
    section = text.index(SECTION)
    starts = (*(block.start for block in blocks), len(text))
    ends = (0, *(block.end for block in blocks))
    gaps = [text[max(end, section) : start] for end, start in zip(ends, starts, strict=True)]
    return ParsedAnswer(
        content=text[:section] or None,
        calls=tuple(parsed_call(block.name, block.arguments) for block in blocks),
        malformed=sum(gap.count(CALL) for gap in gaps),
    )


def _fenced_blocks(text: str) -> Iterator[_Block]:
    end = 0
    fence = text.find(FENCE)
    while fence >= 0:
        if block := _fenced_block(text, fence, end):
            end = block.end
            yield block
        fence = text.find(FENCE, fence + 1)


def _fenced_block(text: str, fence: int, earliest: int) -> _Block | None:
    """The block whose JSON is fenced at `fence`: its head is the line before, its arguments the one after."""
    start = text.find(CALL, max(earliest, text.rfind("\n", 0, fence) + 1), fence)
    separator = text.rfind(SEPARATOR, start + len(CALL), fence) if start >= 0 else -1
    arguments = fence + len(FENCE)
    arguments_end = text.find("\n", arguments)
    if separator < 0 or not text.startswith(FENCE_END, arguments_end):
        return None
    return _Block(
        type=text[start + len(CALL) : separator],
        name=text[separator + len(SEPARATOR) : fence],
        arguments=text[arguments:arguments_end],
        start=start,
        end=arguments_end + len(FENCE_END),
    )


def _bare_blocks(text: str) -> Iterator[_Block]:
    line = 0
    for written in text.split("\n"):
        position = line
        while block := _bare_block(text, position, line + len(written)):
            position = block.end
            yield block
        line += len(written) + 1


def _bare_block(text: str, position: int, limit: int) -> _Block | None:
    start = text.find(CALL, position, limit)
    separator = text.find(SEPARATOR, start + len(CALL), limit) if start >= 0 else -1
    end = text.find(CALL_END, separator + len(SEPARATOR), limit) if separator >= 0 else -1
    if end < 0:
        return None
    return _Block(
        type="function",
        name=text[start + len(CALL) : separator],
        arguments=text[separator + len(SEPARATOR) : end],
        start=start,
        end=end + len(CALL_END),
    )
