"""The messages and tools of a Messages request."""

import json
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import JsonValue

from clotho.models.messages import ChatMessage, FunctionCall, ToolCall, ToolSchema
from clotho.plugins.harness.dialects.canonical import (
    Part,
    content_of,
    function_tool,
    image_part,
    joined,
    text_part,
)
from clotho.plugins.harness.dialects.reading import Place, Reader, Sent

BILLING_HEADER = "x-anthropic-billing-header"
"""Begin of a system block that Claude Code adds, which tells its version and changes between its calls."""
ROLES = {"tool_result": "user", "tool_use": "assistant", "thinking": "assistant"}
"""Roles of messages by the blocks that no other role's may have."""


class MessagesWords:
    def malformed(self, why: str) -> str:
        return f"The request body is not valid JSON: {why}"

    def missing(self, at: Place) -> str:
        return f"{_place(at)}: Field required"

    def empty(self, at: Place) -> str:
        return f"{_place(at)}: at least one message is required"

    def wrong_type(self, at: Place, expected: Sequence[str], value: object) -> str:
        names = {"array": "list", "object": "dictionary"}
        wanted = " or ".join(names.get(name, name) for name in expected)
        return f"{_place(at)}: Input should be a valid {wanted}"

    def unsupported(self, at: Place, value: str, supported: Sequence[str]) -> str:
        *others, last = supported
        return f"{_place(at)}: Input should be {', '.join(others)} or {last}"

    def other(self, at: Place, why: str) -> str:
        return f"{_place(at)}: {why}"


READER = Reader(MessagesWords())


class _Message(Sent):
    role: Literal["user", "assistant", "system"]
    content: JsonValue


class _ToolUse(Sent):
    id: str
    name: str
    input: dict[str, JsonValue]


class _ToolResult(Sent):
    tool_use_id: str
    content: JsonValue = None
    is_error: bool | None = None


class _Offered(Sent):
    name: str
    description: str | None = None
    input_schema: dict[str, JsonValue]


def _place(at: Place) -> str:
    return ".".join(map(str, at))


def system_messages(value: JsonValue) -> Iterator[ChatMessage]:
    if value is None:
        return
    blocks = READER.blocks(value, ("system",))
    texts = [READER.string(block, "text", ("system", index)) for index, block in enumerate(blocks)]
    if text := joined(text for text in texts if not text.startswith(BILLING_HEADER)):
        yield ChatMessage(role="system", content=text)


def messages_of(sent: Part, at: Place) -> Iterator[ChatMessage]:
    """The messages in one that was sent. Results of tools come first, as messages: they answer the one before."""
    message = READER.read(_Message, sent, at)
    at = (*at, "content")
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    parts: list[Part] = []
    results = False
    for index, block in enumerate(READER.blocks(message.content, at)):
        place = (*at, index)
        kind = str(block["type"])
        if (role := ROLES.get(kind, message.role)) != message.role:
            raise READER.refused(place, f"`{kind}` blocks can only be in `{role}` messages")
        if kind == "tool_result":
            results = True
            yield _tool_message(READER.read(_ToolResult, block, place), place)
        elif kind == "tool_use":
            use = READER.read(_ToolUse, block, place)
            arguments = json.dumps(use.input, ensure_ascii=False)
            calls.append(ToolCall(id=use.id, function=FunctionCall(name=use.name, arguments=arguments)))
        elif kind == "thinking":
            reasoning.append(READER.string(block, "thinking", place))
        elif kind != "redacted_thinking":
            parts.append(_part(block, place))
    if message.role == "assistant":
        yield ChatMessage(
            role="assistant",
            content=content_of(parts) or None,
            reasoning_content=joined(reasoning) or None,
            tool_calls=tuple(calls),
        )
    elif parts or not results:
        yield ChatMessage(role=message.role, content=content_of(parts))


def _tool_message(result: _ToolResult, at: Place) -> ChatMessage:
    at = (*at, "content")
    blocks = [] if result.content is None else READER.blocks(result.content, at)
    parts = [_part(block, (*at, index)) for index, block in enumerate(blocks)]
    if result.is_error:
        # the API tells its model so too; a tool message has no other place for it
        parts = [text_part("<error>"), *parts, text_part("</error>")]
    return ChatMessage(role="tool", content=content_of(parts), tool_call_id=result.tool_use_id)


def _part(block: Part, at: Place) -> Part:
    if block["type"] == "text":
        return text_part(READER.string(block, "text", at))
    source = block.get("source")
    if not isinstance(source, dict):
        return block
    url = source.get("url")
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    if block["type"] == "image" and isinstance(url, str):
        return image_part(url)
    if block["type"] == "document" and source.get("type") == "text":
        return text_part(READER.string(source, "data", (*at, "source")))
    if block["type"] == "document" and isinstance(url, str):
        return {"type": "file", "file": {"file_data": url}}
    return block


def offered_tools(value: JsonValue) -> tuple[tuple[ToolSchema, ...], list[JsonValue]]:
    """The tools that can be offered, and those whose schema or execution is the API's."""
    offered: list[ToolSchema] = []
    hosted: list[JsonValue] = []
    for index, tool in enumerate([] if value is None else READER.objects(value, ("tools",))):
        if tool.get("type") in (None, "custom"):
            sent = READER.read(_Offered, tool, ("tools", index))
            offered.append(function_tool(sent.name, sent.description, sent.input_schema))
        else:
            hosted.append(tool)
    return tuple(offered), hosted
