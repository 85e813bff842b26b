"""Requests in each wire dialect that no API would take."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clotho.plugins.harness.dialects import BY_PATH
from clotho.plugins.harness.dialects.canonical import Asked, InvalidRequest
from tests.harness.dialect_requests import CHAT, GO, MESSAGES, RESPONSES, Json, parse


def chat(**fields: Any) -> Json:
    return {"messages": GO, **fields}


def message(**fields: Any) -> Json:
    return {"messages": [fields]}


NOT_TEXT = (
    "Invalid type for 'messages[0].content': expected a string or an array, but got an integer instead."
)
REFUSED: list[tuple[str, Json | bytes, str]] = [
    (CHAT, b'{"model": ', "could not parse the JSON body"),
    (CHAT, b"[]", "could not parse the JSON body of your request: it is not an object."),
    (CHAT, b"\xff", "could not parse the JSON body"),
    (CHAT, b'{"a":' * 200 + b"1" + b"}" * 200, "nested too deeply"),
    (CHAT, b"[" + b"1," * 200_000 + b"1]", "more than 100,000 values"),
    (CHAT, b'{"model": NaN}', "NaN is not JSON"),
    (
        CHAT,
        {"model": None, "messages": GO},
        "Invalid type for 'model': expected a string, but got null instead.",
    ),
    (CHAT, b'{"messages": []}', "Missing required parameter: 'model'."),
    (CHAT, {}, "Missing required parameter: 'messages'."),
    (CHAT, chat(messages=[]), "Invalid 'messages': empty array."),
    (CHAT, chat(messages="Go"), "Invalid type for 'messages': expected an array, but got a string instead."),
    (
        CHAT,
        chat(messages=[1]),
        "Invalid type for 'messages[0]': expected an object, but got an integer instead.",
    ),
    (CHAT, message(role="user", content=1), NOT_TEXT),
    (CHAT, message(role="user"), "Missing required parameter: 'messages[0].content'."),
    (CHAT, message(role="user", content=None), "but got null instead."),
    (
        CHAT,
        message(role="robot", content=""),
        "Invalid value: 'robot'. Supported values for 'messages[0].role'",
    ),
    (CHAT, message(role="user", content=[{"text": "x"}]), "'messages[0].content[0].type'"),
    (CHAT, message(role="user", content=[{"type": "text", "text": 1}]), "'messages[0].content[0].text'"),
    (CHAT, message(role="tool", content=""), "Missing required parameter: 'messages[0].tool_call_id'."),
    (CHAT, message(role="assistant", tool_calls=[{"id": "c"}]), "'messages[0].tool_calls[0].function'"),
    (CHAT, message(role="assistant", tool_calls={}), "'messages[0].tool_calls': expected an array"),
    (CHAT, chat(n=4), "Invalid 'n': integer above maximum value. Expected 1, but got 4 instead."),
    (CHAT, chat(n=0), "Invalid 'n': integer below minimum value."),
    (CHAT, chat(n="1"), "Invalid type for 'n': expected an integer, but got a string instead."),
    (CHAT, chat(logprobs=True), "Unsupported parameter: 'logprobs' is not supported with this model."),
    (CHAT, chat(top_logprobs=2), "Unsupported parameter: 'top_logprobs'"),
    (CHAT, chat(functions=[{"name": "f"}]), "Unsupported parameter: 'functions'"),
    (CHAT, chat(stream="yes"), "Invalid type for 'stream': expected a boolean, but got a string instead."),
    (CHAT, chat(tools=[{"type": "function"}]), "Missing required parameter: 'tools[0].function'."),
    (
        CHAT,
        chat(tools=[{"type": "function", "function": {"name": "f", "parameters": []}}]),
        "function.parameters'",
    ),
    (RESPONSES, {}, "Missing required parameter: 'input'."),
    (RESPONSES, {"input": []}, "Invalid 'input': empty array."),
    (RESPONSES, {"input": [{"role": "robot", "content": ""}]}, "Invalid value: 'robot'."),
    (RESPONSES, {"input": [{"type": "function_call"}]}, "Missing required parameter: 'input[0].call_id'."),
    (
        RESPONSES,
        {"input": [{"type": "function_call_output", "call_id": "c", "output": {}}]},
        "input[0].output",
    ),
    (RESPONSES, {"input": [{"type": "reasoning", "summary": 3}]}, "'input[0].summary'"),
    (RESPONSES, {"input": "Go", "previous_response_id": "r"}, "Previous response with id 'r' not found."),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "Item with id 'x' not found"),
    (RESPONSES, {"input": "Go", "background": True}, "Unsupported parameter: 'background'"),
    (RESPONSES, {"input": "Go", "tools": [{"type": "namespace", "name": "n"}]}, "'tools[0].tools'"),
    (MESSAGES, b"{", "The request body is not valid JSON: "),
    (MESSAGES, {}, "messages: Field required"),
    (MESSAGES, {"messages": []}, "messages: at least one message is required"),
    (
        MESSAGES,
        message(role="robot", content=""),
        "messages.0.role: Input should be 'user', 'assistant' or 'system'",
    ),
    (
        MESSAGES,
        message(role="user", content=None),
        "messages.0.content: Input should be a valid string or list",
    ),
    (
        MESSAGES,
        message(role="user", content=[{"type": "tool_result"}]),
        "messages.0.content.0.tool_use_id: Field",
    ),
    (
        MESSAGES,
        message(role="assistant", content=[{"type": "tool_use", "id": "c", "name": "f", "input": "x"}]),
        "messages.0.content.0.input: Input should be a valid dictionary",
    ),
    (
        MESSAGES,
        message(role="assistant", content=[{"type": "tool_result", "tool_use_id": "c"}]),
        "messages.0.content.0: `tool_result` blocks can only be in `user` messages",
    ),
    (MESSAGES, {"messages": GO, "tools": [{"name": "f"}]}, "tools.0.input_schema: Field required"),
    (MESSAGES, {"messages": GO, "system": [{"type": "text"}]}, "system.0.text: Field required"),
]


@pytest.mark.parametrize(("path", "body", "said"), REFUSED)
def test_what_an_api_would_refuse_is_refused_in_its_words(path: str, body: Json | bytes, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(path, body)
    assert said in refused.value.message
    assert refused.value.status == (404 if "not found" in said else 400)
    assert len(refused.value.message) < 400


NAMES = (
    *(
        "model",
        "role",
        "content",
        "type",
        "text",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "tools",
        "output",
    ),
    *(
        "call_id",
        "id",
        "custom",
        "summary",
        "thinking",
        "source",
        "tool_use_id",
        "encrypted_content",
        "image_url",
    ),
)
WORDS = (
    *(
        "user",
        "assistant",
        "tool",
        "system",
        "text",
        "image",
        "tool_use",
        "tool_result",
        "thinking",
        "reasoning",
    ),
    *(
        "function",
        "custom",
        "message",
        "function_call",
        "custom_tool_call",
        "function_call_output",
        "namespace",
    ),
    *("input_text", "input_image", "base64", "clotho.", "clotho.%"),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=12,
)
strange = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WORDS) | anything, max_size=6)
objects = st.lists(
    st.builds(lambda value, role: {"role": role, **value}, strange, st.sampled_from(WORDS[:4]))
)


@given(st.sampled_from(sorted(BY_PATH)), objects, anything, anything)
def test_anything_else_is_read_or_refused(path: str, messages: Any, tools: Any, system: Any) -> None:
    body = {"model": "m", "tools": tools, "system": system, "messages": messages, "input": messages}
    try:
        asked = parse(path, json.dumps(body).encode())
    except InvalidRequest as refused:
        assert 400 <= refused.status < 500
    else:
        assert Asked.model_validate_json(asked.model_dump_json()) == asked
