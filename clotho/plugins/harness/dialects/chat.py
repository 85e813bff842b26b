"""Chat completions, as mini-swe-agent, opencode and most others ask for them.

Not carried: spelling of the JSON around a freeform tool's text; a text that is in parts becomes one. opencode
spells the JSON of all arguments anew: see `respelt`.

The usage is in the chunk with the finish reason: many clients index the choices of every chunk, which the API's own
chunk for the usage, sent on demand, doesn't have.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import JsonValue

from clotho.models.messages import ChatMessage, FunctionCall, ToolCall, ToolSchema
from clotho.plugins.harness.dialects.canonical import (
    Answer,
    Asked,
    Content,
    Part,
    content_of,
    freeform_arguments,
    freeform_text,
    freeform_tool,
    function_tool,
    text_of,
    text_part,
)
from clotho.plugins.harness.dialects.dialect import ErrorKind, api_key, json_bytes, server_sent
from clotho.plugins.harness.dialects.openai_words import OpenAIWords, error_object, refuse_parameter
from clotho.plugins.harness.dialects.reading import Place, Reader, Sent

Json = dict[str, Any]

CARRIED = {"messages", "model", "tools", "stream"}
FINISH_REASONS = ("stop", "length", "content_filter")
READER = Reader(OpenAIWords())


class _Request(Sent):
    model: str
    stream: bool | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class _Message(Sent):
    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: JsonValue = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_call_id: str | None = None
    tool_calls: JsonValue = None


class _Function(Sent):
    name: str
    arguments: str


class _Custom(Sent):
    name: str
    input: str


class _Call(Sent):
    id: str
    type: Literal["function", "custom"] = "function"
    function: _Function | None = None
    custom: _Custom | None = None


class _OfferedFunction(Sent):
    name: str
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None


class _OfferedCustom(Sent):
    name: str
    description: str | None = None
    format: dict[str, JsonValue] | None = None


class Chat:
    """POST /v1/chat/completions."""

    path = "chat/completions"
    ping = b": waiting\n\n"
    # mini-swe-agent asks ten times again after other statuses than 401 and 404, unless a 400 is about the context
    statuses: Mapping[ErrorKind, int] = {
        "invalid_request": 400,
        "context_overflow": 400,
        "limit_reached": 404,
        "not_found": 404,
        "unauthorized": 401,
    }

    def parse(self, body: bytes) -> Asked:
        sent = READER.body(body)
        request = READER.read(_Request, sent)
        if request.n is not None and request.n != 1:
            bound = "above maximum" if request.n > 1 else "below minimum"
            raise READER.refused(("n",), f"integer {bound} value. Expected 1, but got {request.n} instead")
        for name in ("logprobs", "top_logprobs", "functions"):
            if sent.get(name):
                raise refuse_parameter(name)
        if "messages" not in sent:
            raise READER.missing(("messages",))
        messages = READER.objects(sent["messages"], ("messages",))
        if not messages:
            raise READER.empty(("messages",))
        tools, custom, hosted = _tools(sent.get("tools"))
        requested = {name: value for name, value in sent.items() if name not in CARRIED}
        return Asked(
            messages=tuple(_message(each, ("messages", index)) for index, each in enumerate(messages)),
            tools=tools,
            custom_tools=custom,
            model=request.model,
            stream=request.stream or False,
            requested=requested | ({"tools": hosted} if hosted else {}),
        )

    def answer(self, answer: Answer, id: str, model: str) -> bytes:
        message: Json = {
            "role": "assistant",
            "content": _content(answer.message),
            **_reasoning(answer.message),
        }
        if calls := _calls(answer):
            message["tool_calls"] = calls
        choice: Json = {"index": 0, "message": message, "finish_reason": _finish_reason(answer)}
        return json_bytes(
            {
                "id": f"chatcmpl-{id}",
                "object": "chat.completion",
                "created": 0,
                "model": model,
                "choices": [choice],
                "usage": _usage(answer),
            }
        )

    def opening(self, id: str, model: str) -> bytes:
        return b""

    def events(self, answer: Answer, id: str, model: str, opened: bool = False) -> Iterator[bytes]:
        def chunk(delta: Json, finish_reason: str | None = None, **fields: JsonValue) -> bytes:
            choice: Json = {"index": 0, "delta": delta, "finish_reason": finish_reason}
            # created: 0, not the time: a repeated request gets the same bytes
            base: Json = {"id": f"chatcmpl-{id}", "object": "chat.completion.chunk", "created": 0}
            return server_sent({**base, "model": model, "choices": [choice], **fields})

        content = _content(answer.message)
        yield chunk({"role": "assistant", "content": None if content is None else ""})
        if reasoning := _reasoning(answer.message):
            yield chunk(reasoning)
        if content:
            yield chunk({"content": content})
        for index, call in enumerate(_calls(answer)):
            yield chunk({"tool_calls": [{"index": index, **call}]})
        yield chunk({}, _finish_reason(answer), usage=_usage(answer))
        yield b"data: [DONE]\n\n"

    def error(self, status: int, kind: ErrorKind, message: str) -> bytes:
        return json_bytes({"error": error_object(status, kind, message)})

    def error_event(self, kind: ErrorKind, message: str, id: str, model: str) -> bytes:
        return server_sent({"error": error_object(self.statuses[kind], kind, message)})

    def key(self, headers: Mapping[str, str]) -> str | None:
        return api_key(headers)


def _message(sent: Part, at: Place) -> ChatMessage:
    message = READER.read(_Message, sent, at)
    if message.role == "tool" and message.tool_call_id is None:
        raise READER.missing((*at, "tool_call_id"))
    if message.role == "assistant":
        content = message.refusal if message.content is None else _parts(message.content, (*at, "content"))
    elif "content" in sent:
        content = _parts(message.content, (*at, "content"))
    else:
        raise READER.missing((*at, "content"))
    calls = [] if message.tool_calls is None else READER.objects(message.tool_calls, (*at, "tool_calls"))
    return ChatMessage(
        role="system" if message.role == "developer" else message.role,
        content=content,
        reasoning_content=message.reasoning_content or message.reasoning or None,
        tool_calls=tuple(_call(each, (*at, "tool_calls", index)) for index, each in enumerate(calls)),
        tool_call_id=message.tool_call_id,
        name=message.name,
    )


def _parts(value: JsonValue, at: Place) -> Content:
    if isinstance(value, str):
        return value
    parts = []
    for index, part in enumerate(READER.blocks(value, at)):
        if part["type"] in ("text", "refusal"):
            parts.append(text_part(READER.string(part, str(part["type"]), (*at, index))))
        else:
            parts.append(part)
    return content_of(parts)


def _call(sent: Part, at: Place) -> ToolCall:
    call = READER.read(_Call, sent, at)
    if call.function:
        function = FunctionCall(name=call.function.name, arguments=call.function.arguments)
    elif call.custom:
        function = FunctionCall(name=call.custom.name, arguments=freeform_arguments(call.custom.input))
    else:
        raise READER.missing((*at, call.type))
    return ToolCall(id=call.id, function=function)


def _tools(value: JsonValue) -> tuple[tuple[ToolSchema, ...], frozenset[str], list[JsonValue]]:
    """The tools that can be offered, the names of freeform ones, and tools that the API's host would run."""
    offered: list[ToolSchema] = []
    custom: set[str] = set()
    hosted: list[JsonValue] = []
    for index, tool in enumerate([] if value is None else READER.objects(value, ("tools",))):
        at: Place = ("tools", index)
        kind = READER.string(tool, "type", at)
        if kind in ("function", "custom") and kind not in tool:
            raise READER.missing((*at, kind))
        if kind == "function":
            function = READER.read(_OfferedFunction, tool[kind], (*at, kind))
            offered.append(function_tool(function.name, function.description, function.parameters))
        elif kind == "custom":
            freeform = READER.read(_OfferedCustom, tool[kind], (*at, kind))
            grammar = (freeform.format or {}).get("grammar")
            offered.append(
                freeform_tool(
                    freeform.name, freeform.description, grammar if isinstance(grammar, dict) else None
                )
            )
            custom.add(freeform.name)
        else:
            hosted.append(tool)
    return tuple(offered), frozenset(custom), hosted


def _content(message: ChatMessage) -> str | None:
    return None if message.content is None else text_of(message.content)


def _reasoning(message: ChatMessage) -> Json:
    return {"reasoning_content": message.reasoning_content} if message.reasoning_content else {}


def _calls(answer: Answer) -> list[Json]:
    calls: list[Json] = []
    for call in answer.message.tool_calls:
        name, arguments = call.function.name, call.function.arguments
        if name in answer.custom_tools:
            custom = {"name": name, "input": freeform_text(arguments)}
            calls.append({"id": call.id, "type": "custom", "custom": custom})
        else:
            calls.append(call.model_dump())
    return calls


def _finish_reason(answer: Answer) -> str:
    """`tool_calls` also where the tokens ran out in a later call: clients run no calls of a cut answer."""
    if answer.message.tool_calls:
        return "tool_calls"
    return answer.finish_reason if answer.finish_reason in FINISH_REASONS else "stop"


def _usage(answer: Answer) -> Json:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
