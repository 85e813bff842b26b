"""Hermes tool calls in text."""

import pytest

from clotho.inference.base import FunctionCall
from clotho.inference.tool_call_parsers import hermes


def call(name: str, arguments: str) -> FunctionCall:
    return FunctionCall(name=name, arguments=arguments)


LIST = '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>'
LISTED = call("terminal", '{"command": "ls"}')


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        pytest.param("no call", "no call", (), id="none"),
        pytest.param(LIST, None, (LISTED,), id="one"),
        pytest.param(f"Look.\n{LIST}", "Look.\n", (LISTED,), id="text before"),
        pytest.param(f"{LIST}\n{LIST}", None, (LISTED, LISTED), id="several"),
        pytest.param(
            f"<tool_call>{{oops</tool_call>{LIST}", None, (LISTED,), id="malformed beside a good one"
        ),
        pytest.param(LIST.removesuffix("</tool_call>"), None, (LISTED,), id="not closed"),
        pytest.param("<tool_call>{oops</tool_call>", "<tool_call>{oops</tool_call>", (), id="only malformed"),
        pytest.param("<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", (), id="not an object"),
        pytest.param("<tool_call>", "<tool_call>", (), id="empty"),
        pytest.param(
            '<tool_call>{"name": "todo", "arguments": "{\\"a\\": 1}"}</tool_call>',
            None,
            (call("todo", '{"a": 1}'),),
            id="arguments already text",
        ),
        pytest.param(
            '<tool_call>{"name": "say", "arguments": {"text": "grüße"}}</tool_call>',
            None,
            (call("say", '{"text": "grüße"}'),),
            id="not ASCII",
        ),
    ],
)
def test_parse(text: str, content: str | None, calls: tuple[FunctionCall, ...]) -> None:
    assert hermes.parse(text) == (content, calls)
