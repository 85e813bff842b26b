"""The Responses API, the only one that Codex speaks.

Not carried: that a message has an empty text rather than none; spelling of the JSON around a freeform tool's text;
a text that is in parts becomes one. Reasoning comes back sealed, since Codex drops its text.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from pydantic import JsonValue

from clotho.models.messages import ChatMessage
from clotho.plugins.harness.dialects.canonical import Answer, Asked, freeform_text, text_of
from clotho.plugins.harness.dialects.dialect import ErrorKind, api_key, json_bytes, server_sent
from clotho.plugins.harness.dialects.openai_words import (
    CODES,
    OVERFLOW,
    error_object,
    not_found,
    refuse_parameter,
)
from clotho.plugins.harness.dialects.reading import Sent
from clotho.plugins.harness.dialects.responses_input import (
    NAMESPACE_SEPARATOR,
    READER,
    OfferedTools,
    Transcript,
    seal,
)

Json = dict[str, Any]

CARRIED = {"input", "instructions", "model", "tools", "stream"}
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
EVENTS_OF_OPENING = 2
EMPTIED = ("content", "encrypted_content", "arguments", "input")
"""Fields of an item that its deltas, or its end, fill."""


class _Request(Sent):
    model: str
    instructions: str | None = None
    stream: bool | None = None
    background: bool | None = None
    top_logprobs: int | None = None
    previous_response_id: str | None = None


class Responses:
    """POST /v1/responses."""

    path = "responses"
    # the API's own heartbeat: Codex's clock for idle streams counts events and no comments, and OpenAI's client
    # breaks off at an event that tells of a response by another id
    ping = server_sent({"type": "keepalive", "sequence_number": 1}, "keepalive")
    # Codex asks again after every status but 400 (and 429, which other clients repeat)
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
        for name in ("background", "top_logprobs"):
            if sent.get(name):
                raise refuse_parameter(name)
        if request.previous_response_id is not None:
            raise not_found("Previous response", request.previous_response_id)
        if "input" not in sent:
            raise READER.missing(("input",))
        transcript, tools = Transcript(), OfferedTools()
        if request.instructions:
            transcript.add(ChatMessage(role="system", content=request.instructions))
        if sent.get("tools") is not None:
            tools.add(sent["tools"], ("tools",))
        if isinstance(text := sent["input"], str):
            transcript.add(ChatMessage(role="user", content=text))
        else:
            for index, item in enumerate(READER.objects(sent["input"], ("input",))):
                transcript.add_item(item, ("input", index))
                if item.get("type") == "additional_tools":
                    tools.add(item.get("tools"), ("input", index, "tools"))
        messages = transcript.messages()
        if not messages:
            raise READER.empty(("input",))
        requested = {name: value for name, value in sent.items() if name not in CARRIED}
        return Asked(
            messages=messages,
            tools=tuple(tools.offered),
            custom_tools=frozenset(tools.custom),
            namespaces=tools.namespaces,
            model=request.model,
            stream=request.stream or False,
            requested=requested | ({"tools": tools.hosted} if tools.hosted else {}),
        )

    def answer(self, answer: Answer, id: str, model: str) -> bytes:
        return json_bytes(_finished(answer, id, model))

    def opening(self, id: str, model: str) -> bytes:
        begun = _response(id, model)
        created = _event("response.created", 0, response=begun)
        return created + _event("response.in_progress", 1, response=begun)

    def events(self, answer: Answer, id: str, model: str, opened: bool = False) -> Iterator[bytes]:
        if not opened:
            yield self.opening(id, model)
        numbers = count(EVENTS_OF_OPENING)
        response = _finished(answer, id, model)
        for index, item in enumerate(response["output"]):
            empty = item | {field: type(item[field])() for field in EMPTIED if field in item}
            if "status" in item:
                empty["status"] = "in_progress"
            yield _event("response.output_item.added", next(numbers), output_index=index, item=empty)
            for kind, fields in _deltas(item):
                yield _event(kind, next(numbers), item_id=item["id"], output_index=index, **fields)
            yield _event("response.output_item.done", next(numbers), output_index=index, item=item)
        yield _event("response.completed", next(numbers), response=response)

    def error(self, status: int, kind: ErrorKind, message: str) -> bytes:
        return json_bytes({"error": error_object(status, kind, message)})

    def error_event(self, kind: ErrorKind, message: str, id: str, model: str) -> bytes:
        """Codex ends at these codes; it asks again after any other failure."""
        error = {
            "code": CODES[kind] if kind in ("context_overflow", "limit_reached") else "invalid_prompt",
            "message": f"{OVERFLOW} {message}" if kind == "context_overflow" else message,
        }
        # a stream has begun with the opening: its events have the numbers below EVENTS_OF_OPENING
        failed = _response(id, model) | {"status": "failed", "error": error}
        return _event("response.failed", EVENTS_OF_OPENING, response=failed)

    def key(self, headers: Mapping[str, str]) -> str | None:
        return api_key(headers)


def _event(kind: str, number: int, **fields: JsonValue) -> bytes:
    return server_sent({"type": kind, "sequence_number": number, **fields}, kind)


def _response(id: str, model: str) -> Json:
    """A response that has begun."""
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def _finished(answer: Answer, id: str, model: str) -> Json:
    """The response as a whole.

    It is completed also where tokens ran out, which details and the message's status say: Codex takes
    `response.incomplete` for a broken stream, and would sample the same turn again and again.
    """
    cut = None if answer.message.tool_calls else INCOMPLETE.get(answer.finish_reason or "")
    return _response(id, model) | {
        "status": "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "output": list(_items(answer, id, "incomplete" if cut else "completed")),
        "usage": {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": answer.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        },
    }


def _items(answer: Answer, id: str, status: str) -> Iterator[Json]:
    if reasoning := answer.message.reasoning_content:
        content = [{"type": "reasoning_text", "text": reasoning}]
        sealed = {"encrypted_content": seal(reasoning)}
        yield {"id": f"rs_{id}", "type": "reasoning", "summary": [], "content": content, **sealed}
    if text := text_of(answer.message.content):
        parts = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
        yield {"id": f"msg_{id}", "type": "message", "status": status, "role": "assistant", "content": parts}
    for index, call in enumerate(answer.message.tool_calls):
        name, arguments = call.function.name, call.function.arguments
        named: Json = {"call_id": call.id, "name": name}
        if namespace := answer.namespaces.get(name):
            named["name"] = name.removeprefix(namespace + NAMESPACE_SEPARATOR)
            named["namespace"] = namespace
        if name in answer.custom_tools:
            text = freeform_text(arguments)
            yield {"id": f"ctc_{id}_{index}", "type": "custom_tool_call", **named, "input": text}
        else:
            item = {"id": f"fc_{id}_{index}", "type": "function_call", "status": "completed"}
            yield {**item, **named, "arguments": arguments}


def _deltas(item: Json) -> Iterator[tuple[str, Json]]:
    """Events that fill an item, each of whose texts comes at once."""
    if item["type"] in ("message", "reasoning"):
        part = item["content"][0]
        kind: str = part["type"]
        logprobs: Json = {"logprobs": []} if kind == "output_text" else {}
        yield "response.content_part.added", {"content_index": 0, "part": part | {"text": ""}}
        yield f"response.{kind}.delta", {"content_index": 0, "delta": part["text"], **logprobs}
        yield f"response.{kind}.done", {"content_index": 0, "text": part["text"], **logprobs}
        yield "response.content_part.done", {"content_index": 0, "part": part}
    elif item["type"] == "function_call":
        yield "response.function_call_arguments.delta", {"delta": item["arguments"]}
        yield "response.function_call_arguments.done", {"arguments": item["arguments"]}
    else:
        yield "response.custom_tool_call_input.delta", {"delta": item["input"]}
        yield "response.custom_tool_call_input.done", {"input": item["input"]}
