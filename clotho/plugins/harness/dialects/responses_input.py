"""The input items and tools of a Responses request as messages and tools."""

import base64
import binascii
import json
from typing import Any, Literal

from pydantic import JsonValue

from clotho.models.messages import ChatMessage, FunctionCall, ToolCall, ToolSchema
from clotho.plugins.harness.dialects.canonical import (
    Content,
    Part,
    content_of,
    freeform_arguments,
    freeform_tool,
    function_tool,
    image_part,
    joined,
    text_part,
)
from clotho.plugins.harness.dialects.openai_words import OpenAIWords, not_found
from clotho.plugins.harness.dialects.reading import Place, Reader, Sent

READER = Reader(OpenAIWords())
SEAL = "clotho."
"""Prefix of reasoning that went out as `encrypted_content`."""
NAMESPACE_SEPARATOR = "__"
"""Between a namespace and a tool's name: model servers refuse names with a dot."""


class _MessageItem(Sent):
    role: Literal["developer", "system", "user", "assistant"]
    content: JsonValue


class _ReasoningItem(Sent):
    summary: JsonValue = None
    content: JsonValue = None
    encrypted_content: str | None = None


class _FunctionCallItem(Sent):
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class _CustomCallItem(Sent):
    call_id: str
    name: str
    input: str
    namespace: str | None = None


class _OutputItem(Sent):
    call_id: str
    output: JsonValue


class _Offered(Sent):
    name: str
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    format: dict[str, JsonValue] | None = None


def seal(reasoning: str) -> str:
    """Reasoning as `encrypted_content`: Codex sends no other form of it back."""
    return SEAL + base64.b64encode(reasoning.encode()).decode()


def unseal(sealed: str | None) -> str | None:
    """The reasoning in `encrypted_content`; None where it is another server's."""
    if sealed is None or not sealed.startswith(SEAL):
        return None
    try:
        return base64.b64decode(sealed.removeprefix(SEAL), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def qualified(name: str, namespace: str | None) -> str:
    """The name by which a tool of a namespace is offered."""
    return f"{namespace}{NAMESPACE_SEPARATOR}{name}" if namespace else name


class Transcript:
    """Makes messages of items. Items of an assistant join one message while they can be of one turn.

    A server writes a turn as reasoning, text and calls, in this order: an item that belongs before one that the
    open message has begins the next message.
    """

    def __init__(self) -> None:
        self._messages: list[ChatMessage] = []
        self._turn: dict[str, Any] = {}

    def messages(self) -> tuple[ChatMessage, ...]:
        self._end_turn()
        return tuple(self._messages)

    def add(self, message: ChatMessage) -> None:
        self._end_turn()
        self._messages.append(message)

    def add_item(self, item: Part, at: Place) -> None:
        kind = item.get("type") or "message"
        if kind == "message":
            sent = READER.read(_MessageItem, item, at)
            content = parts_of(sent.content, (*at, "content"))
            if sent.role == "assistant":
                self._extend_turn(content=content)
            else:
                role: Literal["system", "user"] = "user" if sent.role == "user" else "system"
                self.add(ChatMessage(role=role, content=content))
        elif kind == "reasoning":
            if reasoning := _reasoning(READER.read(_ReasoningItem, item, at), at):
                self._extend_turn(reasoning_content=reasoning)
        elif kind == "function_call":
            call = READER.read(_FunctionCallItem, item, at)
            self._extend_turn_by_call(call.call_id, qualified(call.name, call.namespace), call.arguments)
        elif kind == "custom_tool_call":
            custom = READER.read(_CustomCallItem, item, at)
            name = qualified(custom.name, custom.namespace)
            self._extend_turn_by_call(custom.call_id, name, freeform_arguments(custom.input))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            done = READER.read(_OutputItem, item, at)
            content = parts_of(done.output, (*at, "output"))
            self.add(ChatMessage(role="tool", content=content, tool_call_id=done.call_id))
        elif kind == "item_reference":
            raise not_found("Item", item.get("id"))
        elif kind != "additional_tools":
            # items of tools that a host would run, and of a later API: the model can read them, if nothing more
            self.add(ChatMessage(role="user", content=json.dumps(item, sort_keys=True, ensure_ascii=False)))

    def _extend_turn(self, **fields: Content) -> None:
        if ("reasoning_content" in fields and self._turn) or {"content", "tool_calls"} & self._turn.keys():
            self._end_turn()
        self._turn |= fields

    def _extend_turn_by_call(self, id: str, name: str, arguments: str) -> None:
        call = ToolCall(id=id, function=FunctionCall(name=name, arguments=arguments))
        self._turn.setdefault("tool_calls", []).append(call)

    def _end_turn(self) -> None:
        if self._turn:
            self._messages.append(ChatMessage(role="assistant", **self._turn))
            self._turn = {}


class OfferedTools:
    """Tools of a request, and of the items that add some."""

    def __init__(self) -> None:
        self.offered: list[ToolSchema] = []
        self.custom: set[str] = set()
        self.namespaces: dict[str, str] = {}
        self.hosted: list[JsonValue] = []

    def add(self, tools: JsonValue, at: Place, namespace: str | None = None) -> None:
        for index, tool in enumerate(READER.objects(tools, at)):
            place = (*at, index)
            kind = READER.string(tool, "type", place)
            if kind in ("function", "custom"):
                sent = READER.read(_Offered, tool, place)
                name = qualified(sent.name, namespace)
                if namespace:
                    self.namespaces[name] = namespace
                if kind == "custom":
                    self.custom.add(name)
                    self.offered.append(freeform_tool(name, sent.description, sent.format))
                else:
                    self.offered.append(function_tool(name, sent.description, sent.parameters))
            elif kind == "namespace" and namespace is None:
                self.add(tool.get("tools"), (*place, "tools"), READER.string(tool, "name", place))
            else:
                self.hosted.append(tool)


def parts_of(value: JsonValue, at: Place) -> str | tuple[Part, ...]:
    if isinstance(value, str):
        return value
    return content_of([_part(block, (*at, index)) for index, block in enumerate(READER.blocks(value, at))])


def _part(block: Part, at: Place) -> Part:
    kind = block["type"]
    if kind in ("input_text", "output_text", "text", "reasoning_text", "summary_text"):
        return text_part(READER.string(block, "text", at))
    if kind == "refusal":
        return text_part(READER.string(block, "refusal", at))
    if kind == "input_image" and isinstance(url := block.get("image_url"), str):
        detail = block.get("detail")
        return image_part(url, detail if isinstance(detail, str) else None)
    if kind == "input_file":
        return {"type": "file", "file": {name: value for name, value in block.items() if name != "type"}}
    return block


def _reasoning(item: _ReasoningItem, at: Place) -> str | None:
    if sealed := unseal(item.encrypted_content):
        return sealed
    for field, value in (("content", item.content), ("summary", item.summary)):
        if value:
            place = (*at, field)
            texts = (
                READER.string(block, "text", (*place, index))
                for index, block in enumerate(READER.blocks(value, place))
            )
            return joined(texts) or None
    return None
