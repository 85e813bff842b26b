"""Chat completions as servers word them."""

import json
from typing import Any

import pytest

from clotho.errors import ModelRejected, ModelUnavailable
from clotho.models.messages import ChatMessage
from clotho.models.openai_chat import read_completion

KEY = "run/g000001/r0/turn/0003"
HERMES = '<tool_call>{"name": "terminal", "arguments": {"command": "ls"}}</tool_call>'


def body(message: dict[str, Any], **fields: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": fields.pop("finish_reason", "stop")}
    return json.dumps({"choices": [choice], "model": "m"} | fields).encode()


def message(wire: dict[str, Any], tools_offered: bool = True) -> ChatMessage:
    return read_completion(body({"role": "assistant"} | wire)).answer(KEY, tools_offered)[0]


@pytest.mark.parametrize(
    ("wire", "reasoning"),
    [
        ({"reasoning_content": "a", "reasoning": "b"}, "a"),
        ({"reasoning": "b", "reasoning_details": [{"text": "c"}]}, "b"),
        ({"reasoning_details": [{"type": "encrypted"}, {"text": "c"}, {"text": "d"}]}, "c"),
        ({"reasoning_content": "", "reasoning": "b"}, "b"),
        ({}, None),
    ],
)
def test_reasoning(wire: dict[str, Any], reasoning: str | None) -> None:
    assert message({"content": "x"} | wire).reasoning_content == reasoning


def test_reasoning_details_are_kept_verbatim() -> None:
    details = [{"type": "reasoning.encrypted", "data": "abc"}]
    completion = read_completion(body({"content": "x", "reasoning_details": details}))
    assert completion.reasoning_details() == tuple(details)


def test_numbers_in_them_that_are_none_are_left_out() -> None:
    details = read_completion(body({"content": "x", "reasoning_details": [{"a": float("nan")}, 1]}))
    assert details.reasoning_details() == ({"a": None}, 1)


def test_malformed_calls_are_kept_as_sampled() -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "nobody", "arguments": '{"command": '}},
        {"id": "b", "type": "function", "function": {"name": None, "arguments": None}},
    ]
    sampled = message({"content": None, "tool_calls": calls}).tool_calls
    assert [(call.id, call.function.name, call.function.arguments) for call in sampled] == [
        ("a", "nobody", '{"command": '),
        ("b", "", "{}"),
    ]


def test_calls_without_ids_get_the_same_ones_every_time() -> None:
    calls = [{"function": {"name": "t", "arguments": {"a": 1}}}] * 2
    first, second = message({"tool_calls": calls}).tool_calls
    assert first.id != second.id
    assert first.function.arguments == '{"a": 1}'
    assert message({"tool_calls": calls}).tool_calls == (first, second)


def test_calls_left_in_the_text_are_found() -> None:
    sampled = message({"content": f"Look. {HERMES}"})
    assert sampled.content == "Look. "
    assert sampled.tool_calls[0].function.name == "terminal"


def test_text_stays_text_beside_calls_or_without_tools() -> None:
    call = {"id": "a", "function": {"name": "t", "arguments": "{}"}}
    assert message({"content": HERMES, "tool_calls": [call]}).content == HERMES
    assert message({"content": HERMES}, tools_offered=False).tool_calls == ()


def test_content_in_parts_and_refusals() -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "b"},
    ]
    assert message({"content": parts}).content == "ab"
    assert message({"content": None, "refusal": "No."}).content == "No."


def test_an_empty_message_is_an_answer() -> None:
    assert message({"content": ""}) == ChatMessage(role="assistant", content="")


def test_usage() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    assert read_completion(body({}, usage=usage)).token_usage().cached_prompt_tokens == 4
    assert read_completion(body({})).token_usage().prompt_tokens == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [{"finish_reason": "stop"}]}',
        body({"content": "half"}, finish_reason="abort"),
        b'{"error": {"message": "upstream died", "code": 502}}',
        b'{"error": {"message": "upstream died", "code": "bad_gateway"}}',
    ],
)
def test_what_is_no_answer_is_an_outage(answer: bytes) -> None:
    with pytest.raises(ModelUnavailable):
        read_completion(answer)


def test_an_error_inside_a_success_keeps_its_meaning() -> None:
    with pytest.raises(ModelRejected, match="no such model"):
        read_completion(b'{"error": {"message": "no such model", "code": 404}}')
