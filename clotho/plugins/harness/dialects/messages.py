"""Anthropic's Messages API, which Claude Code speaks.

Not carried: that a message has an empty text rather than none; how a call's arguments are spelt, since the API has
objects there and a client writes them anew. Arguments that aren't an object go out, and come back, as
`{"input": text}`. A text that is in parts becomes one.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from clotho.plugins.harness.dialects.canonical import Answer, Asked, arguments_object, text_of
from clotho.plugins.harness.dialects.dialect import ErrorKind, api_key, json_bytes, server_sent
from clotho.plugins.harness.dialects.messages_input import (
    READER,
    messages_of,
    offered_tools,
    system_messages,
)
from clotho.plugins.harness.dialects.reading import Sent

Json = dict[str, Any]

CARRIED = {"messages", "system", "model", "tools", "stream"}
STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal"}
OVERFLOW = "prompt is too long"
"""Claude Code knows an overflow by these words."""
ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


class _Request(Sent):
    model: str
    stream: bool | None = None


class Messages:
    """POST /v1/messages."""

    path = "messages"
    ping = server_sent({"type": "ping"}, "ping")
    statuses: Mapping[ErrorKind, int] = {
        "invalid_request": 400,
        "context_overflow": 400,
        "limit_reached": 400,
        "not_found": 404,
        "unauthorized": 401,
    }

    def parse(self, body: bytes) -> Asked:
        sent = READER.body(body)
        request = READER.read(_Request, sent)
        if "messages" not in sent:
            raise READER.missing(("messages",))
        listed = READER.objects(sent["messages"], ("messages",))
        if not listed:
            raise READER.empty(("messages",))
        messages = list(system_messages(sent.get("system")))
        for index, each in enumerate(listed):
            messages += messages_of(each, ("messages", index))
        tools, hosted = offered_tools(sent.get("tools"))
        requested = {name: value for name, value in sent.items() if name not in CARRIED}
        return Asked(
            messages=tuple(messages),
            tools=tools,
            model=request.model,
            stream=request.stream or False,
            requested=requested | ({"tools": hosted} if hosted else {}),
        )

    def answer(self, answer: Answer, id: str, model: str) -> bytes:
        return json_bytes(_message(answer, id, model))

    def opening(self, id: str, model: str) -> bytes:
        """Nothing: after `message_start`, Claude Code takes a long wait for a broken stream."""
        return b""

    def events(self, answer: Answer, id: str, model: str, opened: bool = False) -> Iterator[bytes]:
        message = _message(answer, id, model)
        usage, stop = message["usage"], {name: message[name] for name in ("stop_reason", "stop_sequence")}
        begun = {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 0}}
        yield _event("message_start", message=message | begun)
        for index, block in enumerate(message["content"]):
            empty, deltas = _deltas(block)
            yield _event("content_block_start", index=index, content_block=block | empty)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta=stop, usage=usage)
        yield _event("message_stop")

    def error(self, status: int, kind: ErrorKind, message: str) -> bytes:
        return json_bytes(_error(status, kind, message))

    def error_event(self, kind: ErrorKind, message: str, id: str, model: str) -> bytes:
        return server_sent(_error(self.statuses[kind], kind, message), "error")

    def key(self, headers: Mapping[str, str]) -> str | None:
        return api_key(headers)


def _message(answer: Answer, id: str, model: str) -> Json:
    content: list[Json] = []
    if thinking := answer.message.reasoning_content:
        content.append({"type": "thinking", "thinking": thinking, "signature": _signature(thinking)})
    if text := text_of(answer.message.content):
        content.append({"type": "text", "text": text})
    for call in answer.message.tool_calls:
        use = {"type": "tool_use", "id": call.id, "name": call.function.name}
        content.append({**use, "input": arguments_object(call.function.arguments)})
    calls = bool(answer.message.tool_calls)
    return {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if calls else STOP_REASONS.get(answer.finish_reason or "", "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": answer.prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": answer.completion_tokens,
        },
    }


def _signature(thinking: str) -> str:
    """A signature, without which clients drop a thinking block; nothing checks it."""
    return base64.b64encode(hashlib.sha256(f"clotho {thinking}".encode()).digest()).decode()


def _deltas(block: Json) -> tuple[Json, list[Json]]:
    """A block's fields before its deltas, and these."""
    if block["type"] == "thinking":
        signature = {"type": "signature_delta", "signature": block["signature"]}
        thinking = {"type": "thinking_delta", "thinking": block["thinking"]}
        return {"thinking": "", "signature": ""}, [thinking, signature]
    if block["type"] == "text":
        return {"text": ""}, [{"type": "text_delta", "text": block["text"]}]
    return {"input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


def _event(kind: str, **fields: JsonValue) -> bytes:
    return server_sent({"type": kind, **fields}, kind)


def _error(status: int, kind: ErrorKind, message: str) -> Json:
    type = ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    said = f"{OVERFLOW}: {message}" if kind == "context_overflow" else message
    return {"type": "error", "error": {"type": type, "message": said}}
