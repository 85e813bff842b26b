"""The parser of the how-to page reads calls, leaves the rest, and never raises."""

import doctest
import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clotho.models.tool_call_parsers.parser import ToolCallParser
from examples.how_to.bracket_parser import BracketParser
from tests.docs.markdown import blocks

PARSER: ToolCallParser = BracketParser()
PIECES = ("[CALL ", "[CALL terminal ", '{"command": "ls"}', "]", "{", '"', "\\ud83c", "[", "Hm.")


def found(text: str) -> list[tuple[str, object]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in PARSER.parse(text).calls]


def test_calls_and_the_text_before_them() -> None:
    answer = PARSER.parse('Let me look.\n[CALL terminal {"command": "ls ]"}] [CALL todo {}] Done.')
    assert answer.content == "Let me look."
    assert [call.function.name for call in answer.calls] == ["terminal", "todo"]
    assert json.loads(answer.calls[0].function.arguments) == {"command": "ls ]"}
    assert answer.malformed == 0


def test_text_without_calls_is_the_content() -> None:
    assert PARSER.parse("[CALL me] later").content == "[CALL me] later"


@pytest.mark.parametrize(
    "block",
    ["[CALL terminal {]", "[CALL terminal x", '[CALL terminal ["ls"]]', '[CALL terminal {"command": 1}'],
)
def test_a_malformed_block_costs_only_itself(block: str) -> None:
    text = f"{block}\n[CALL todo {{}}]"
    assert found(text) == [("todo", {})]
    assert PARSER.parse(text).malformed == 1


@given(text=st.text() | st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=20).map("".join))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_text_raises(text: str) -> None:
    PARSER.parse(text).model_dump_json()


@pytest.mark.parametrize(
    "bit", [*PIECES, '[CALL terminal {"a": ', '[CALL terminal {"command": "ls"}] ', "[CALL t {\n"]
)
def test_a_hostile_megabyte_takes_linear_time(bit: str) -> None:
    whole = took(bit, 1_000_000)
    assert whole < 5 or whole < 24 * took(bit, 125_000), "thrice what is linear, on a slow machine"


def took(bit: str, characters: int) -> float:
    """Seconds of the processor's time that a text of so many characters takes."""
    began = time.process_time()
    PARSER.parse(bit * (characters // len(bit)))
    return time.process_time() - began


def test_the_page_shows_what_it_returns() -> None:
    [shown] = [block.text for block in blocks("docs/how-to/tool-call-parser.md") if block.language == "pycon"]
    known = {"BracketParser": BracketParser}
    assert doctest.DocTestRunner().run(
        doctest.DocTestParser().get_doctest(shown, known, "page", None, 0)
    ) == (0, 1)
