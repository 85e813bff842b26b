"""The hermes dialect, whose answers chat mode reads as well."""

import pytest

from clotho.models.messages import FunctionCall
from clotho.models.tool_call_parsers import ParsedAnswer, ParsedCall, parser


def call(name: str, arguments: str) -> ParsedCall:
    return ParsedCall(function=FunctionCall(name=name, arguments=arguments))


LIST = '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>'
LISTED = call("terminal", '{"command": "ls"}')
OOPS = "<tool_call>{oops</tool_call>"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("no call", ParsedAnswer(content="no call"), id="none"),
        pytest.param(LIST, ParsedAnswer(content=None, calls=(LISTED,)), id="one"),
        pytest.param(f"Look.\n{LIST}", ParsedAnswer(content="Look.\n", calls=(LISTED,)), id="text before"),
        pytest.param(
            f"{LIST} and {LIST}\nDone.",
            ParsedAnswer(content=None, calls=(LISTED, LISTED)),
            id="text after",
        ),
        pytest.param(
            f"{OOPS}{LIST}",
            ParsedAnswer(content=OOPS, calls=(LISTED,), malformed=1),
            id="malformed beside a good one",
        ),
        pytest.param(
            f"Look.\n{LIST}\n{OOPS}\n{OOPS}Done.",
            ParsedAnswer(content=f"Look.\n{OOPS}\n{OOPS}", calls=(LISTED,), malformed=2),
            id="malformed after text and a good one",
        ),
        pytest.param(
            LIST.removesuffix("</tool_call>"), ParsedAnswer(content=None, calls=(LISTED,)), id="not closed"
        ),
        pytest.param(f"a{OOPS}", ParsedAnswer(content=f"a{OOPS}", malformed=1), id="only malformed"),
        pytest.param(
            "<tool_call>[1]</tool_call>",
            ParsedAnswer(content="<tool_call>[1]</tool_call>", malformed=1),
            id="not an object",
        ),
        pytest.param("<tool_call>", ParsedAnswer(content="<tool_call>", malformed=1), id="empty"),
        pytest.param(
            '<tool_call>{"name": "todo", "arguments": "{\\"a\\": 1}"}</tool_call>',
            ParsedAnswer(content=None, calls=(call("todo", '{"a": 1}'),)),
            id="arguments already text",
        ),
        pytest.param(
            '<tool_call>{"name": "say", "arguments": {"text": "grüße"}}</tool_call>',
            ParsedAnswer(content=None, calls=(call("say", '{"text": "grüße"}'),)),
            id="not ASCII",
        ),
        pytest.param(
            '<tool_call>{"name": "say", "arguments": {"text": "\\ud83c"}}</tool_call>',
            ParsedAnswer(content=None, calls=(call("say", '{"text": "\\ud83c"}'),)),
            id="half a character",
        ),
    ],
)
def test_parse(text: str, answer: ParsedAnswer) -> None:
    assert parser("hermes").parse(text) == answer
