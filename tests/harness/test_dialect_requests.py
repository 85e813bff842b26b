"""Requests in each wire dialect, as harnesses send them."""

import json
from typing import Any

from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.plugins.harness.dialects.canonical import Asked
from tests.harness.dialect_requests import CHAT, GO, MESSAGES, RESPONSES, Json, parse

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
BASH = {
    "type": "function",
    "function": {"name": "bash", "description": "Run a command.", "parameters": SCHEMA},
}
PNG = "data:image/png;base64,iVBORw0KGgo="


def user(content: str) -> ChatMessage:
    return ChatMessage(role="user", content=content)


def called(*calls: tuple[str, str, str], **fields: Any) -> ChatMessage:
    made = (ToolCall(id=id, function=FunctionCall(name=name, arguments=text)) for id, name, text in calls)
    return ChatMessage(role="assistant", tool_calls=tuple(made), **fields)


def result(id: str, content: Any) -> ChatMessage:
    return ChatMessage(role="tool", content=content, tool_call_id=id)


def test_all_dialects_ask_for_the_same() -> None:
    first = called(("c1", "bash", '{"command": "ls"}'), content="I look.", reasoning_content="Which files?")
    expected = Asked(
        messages=(
            ChatMessage(role="system", content="Be brief."),
            user("Go"),
            first,
            result("c1", "a.txt"),
            user("And?"),
        ),
        tools=(BASH,),
        model="policy",
        stream=True,
        requested={"temperature": 0.5},
    )
    common = {"stream": True, "temperature": 0.5}
    wire = {
        **first.wire(),
        "tool_calls": [{"id": "c1", **BASH, "function": {"name": "bash", "arguments": '{"command": "ls"}'}}],
    }
    chat = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        *GO,
        wire,
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        {"role": "user", "content": "And?"},
    ]
    assert parse(CHAT, {"messages": chat, "tools": [BASH], **common}) == expected
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Which files?"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "ls"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
        {"role": "user", "content": "And?"},
    ]
    flat = {"type": "function", "strict": False, **BASH["function"]}  # type: ignore[dict-item]
    asked = {"instructions": "Be brief.", "input": items, "tools": [flat], **common}
    assert parse(RESPONSES, asked) == expected
    blocks = [
        {"type": "thinking", "thinking": "Which files?", "signature": "s"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
    ]
    answers = [
        {"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
    ]
    turns = [*GO, {"role": "assistant", "content": blocks}, {"role": "user", "content": answers}]
    tool = {"name": "bash", "description": "Run a command.", "input_schema": SCHEMA}
    assert parse(MESSAGES, {"system": "Be brief.", "messages": turns, "tools": [tool], **common}) == expected


def test_images_become_the_same_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": PNG}}
    expected = ({"type": "text", "text": "See"}, image)
    text = {"type": "text", "text": "See"}
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    bodies: dict[str, Json] = {
        CHAT: {"messages": [{"role": "user", "content": [text, image]}]},
        RESPONSES: {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "See"},
                        {"type": "input_image", "image_url": PNG},
                    ],
                }
            ]
        },
        MESSAGES: {"messages": [{"role": "user", "content": [text, {"type": "image", "source": source}]}]},
    }
    for path, body in bodies.items():
        assert parse(path, body).messages[-1].content == expected


def test_codex_offers_tools_of_all_kinds() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: PATCH"}
    patch = {"type": "custom", "name": "apply_patch", "description": "Edit.", "format": grammar}
    spawn = {"type": "function", "name": "spawn", "parameters": {"type": "object", "properties": {}}}
    search = {"type": "web_search", "external_web_access": False}
    added = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}
    tools = [patch, search, {"type": "namespace", "name": "agents", "description": "", "tools": [spawn]}]
    sent = [
        added,
        *GO,
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
        {
            "type": "custom_tool_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "ok"}],
        },
    ]
    asked = parse(RESPONSES, {"input": sent, "tools": tools, "prompt_cache_key": "x"})
    offered = {str(tool["function"]["name"]): tool["function"] for tool in asked.tools}  # type: ignore[index, call-overload]
    assert list(offered) == ["apply_patch", "agents__spawn", "exec"]
    assert "start: PATCH" in str(offered["apply_patch"])
    assert asked.custom_tools == {"apply_patch", "exec"}
    assert asked.namespaces == {"agents__spawn": "agents"}
    assert asked.requested == {"prompt_cache_key": "x", "tools": [search]}
    assert asked.messages[1:] == (called(("c1", "apply_patch", '{"input": "*** Begin"}')), result("c1", "ok"))


def test_items_of_an_assistant_fold_into_turns() -> None:
    def call(id: str) -> Json:
        return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}

    def said(text: str) -> Json:
        return {"role": "assistant", "content": text}

    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    sent = [
        *GO,
        thought,
        call("c1"),
        call("c2"),
        said("A"),
        call("c3"),
        foreign,
        said("B"),
        thought,
        said("C"),
    ]
    assert parse(RESPONSES, {"input": sent}).messages[1:] == (
        called(("c1", "f", "{}"), ("c2", "f", "{}"), reasoning_content="Hm"),
        called(("c3", "f", "{}"), content="A"),
        called(content="B"),
        called(content="C", reasoning_content="Hm"),
    )


def test_unknown_items_can_be_read_by_the_model() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    asked = parse(RESPONSES, {"input": [*GO, item]})
    assert json.loads(str(asked.messages[-1].content)) == item


def test_claude_code_sends_blocks() -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.abc"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief."},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "no such file", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c2"},
        {"type": "text", "text": "<system-reminder>"},
        {"type": "text", "text": "Go on."},
    ]
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    turns = [*GO, {"role": "user", "content": results}, {"role": "system", "content": "New mode."}]
    asked = parse(MESSAGES, {"system": system, "messages": turns, "tools": [hosted], "max_tokens": 32_000})
    assert asked.messages == (
        ChatMessage(role="system", content="You are an agent.\nBe brief."),
        user("Go"),
        result("c1", "<error>\nno such file\n</error>"),
        result("c2", ""),
        user("<system-reminder>\nGo on."),
        ChatMessage(role="system", content="New mode."),
    )
    assert asked.requested == {"max_tokens": 32_000, "tools": [hosted]}


def test_halves_of_characters_are_replaced() -> None:
    for content in (rb"a\ud83d b\ud83e\udd80", b"a\xed\xa0\xbd b\xf0\x9f\xa6\x80"):
        body = b'{"model": "m", "messages": [{"role": "user", "content": "' + content + b'"}]}'
        assert parse(CHAT, body).messages == (user("a� b🦀"),)
