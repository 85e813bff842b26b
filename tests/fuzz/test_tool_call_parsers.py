"""Tool-call parsers on whatever a model could write: they never raise, never hang, and lose no call silently."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from clotho.models.messages import ToolSchema
from clotho.models.rendering.messages import TAGS, split_reasoning
from clotho.models.tool_call_parsers import PARSERS, ParsedAnswer, parser
from tests.fuzz.runner import Fuzzer, mutated, soup
from tests.support import cpu_seconds
from tests.unit.tool_call_parsers.dialects import DIALECTS

SLOWEST = 1.0
"""Seconds of CPU for a text of a few kilobytes."""
DISTINCT = [name for name in PARSERS if name not in ("qwen", "llama4_json", "glm47", "deepseek_v31")]
TOOLS: list[ToolSchema] = [
    {
        "type": "function",
        "function": {
            "name": "terminal",
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "timeout": {"type": ["integer", "null"]},
                    "env": {"type": "object", "properties": {"a": {"type": "number"}}},
                    "watch": {
                        "type": "array",
                        "items": {"anyOf": [{"type": "boolean"}, {"type": "integer"}]},
                    },
                },
            },
        },
    }
]
FRAGMENTS = (
    '{"name": "terminal", "arguments": {"command": "ls", "timeout": "5"}}',
    '"name": "a:1"',
    '"\\ud83c"',
    "terminal",
    "rm",
    "functions.terminal:0",
    "1e999",
    "9" * 5_000,
    "[" * 200,
    "{",
    "}",
    "\n",
    " ",
    *(tag for tags in TAGS for tag in tags),
)
CALLS = ([("terminal", {"command": "ls", "timeout": "5"})], [("terminal", {"a": "1"}), ("rm", {})])


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    tools: Sequence[ToolSchema]
    whole: bool = False
    """The text is prose and one call as the dialect has it."""


def test_no_text_breaks_a_parser(fuzzer: Fuzzer) -> None:
    assert fuzzer.run(make, check)


def make(random: Random) -> Case:
    name = random.choice(DISTINCT)
    dialects, tools = DIALECTS[name], random.choice((TOOLS, []))
    pieces = (*(marker for dialect in dialects for marker in dialect.markers), *FRAGMENTS)
    written = random.choice(dialects).render(random.choice(CALLS))
    match random.randrange(4):
        case 0:
            return Case(name, soup(random, pieces), tools)
        case 1:
            marks = {*"".join(pieces)} - {*"abcdefghij kl\n"}
            prose = "".join(each for each in soup(random, ("glad ", "\n", "beach ")) if each not in marks)
            return Case(name, f"{prose}\n{random.choice(dialects).render(CALLS[0])}", tools, whole=True)
    return Case(name, mutated(random, written, pieces), tools)


def check(case: Case) -> None:
    answer = parser(case.name).parse(case.text, case.tools)
    assert cpu_seconds(partial(parser(case.name).parse, case.text, case.tools), SLOWEST) < SLOWEST, "slow"
    assert ParsedAnswer.model_validate_json(answer.model_dump_json()) == answer
    assert answer == parser(case.name).parse(case.text, case.tools)
    for call in answer.calls:
        call.function.arguments.encode()
    reasoning, rest = split_reasoning(case.text, TAGS[0])
    assert (reasoning or "") in case.text and (rest or "") in case.text
    if case.whole:
        assert [call.function.name for call in answer.calls] == ["terminal"]
        assert json.loads(answer.calls[0].function.arguments)["command"] == "ls"
        assert answer.defects.total == 0
