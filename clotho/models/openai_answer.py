"""Strict reading of a chat completion's body."""

import json
from collections.abc import Iterator

from pydantic import BaseModel, Field, JsonValue, ValidationError

from clotho.errors import ModelRejected, ModelUnavailable
from clotho.identifiers.ids import job_key
from clotho.models.backend import Usage
from clotho.models.bodies import ERROR_BYTES
from clotho.models.messages import CallDefects, ChatMessage, FunctionCall, ToolCall
from clotho.models.model_http import ModelHTTP, first_fault, status_within
from clotho.models.provider_errors import refusal
from clotho.models.reported import REASON_CHARACTERS, UNFINISHED, ReportedUsage
from clotho.models.tool_call_parsers import hermes, parser

ID_CHARACTERS = 256
"""Characters of a tool call's id: it is sent back with every later turn."""


class _Function(BaseModel):
    name: str | None = None
    arguments: str | dict[str, JsonValue] | None = None


class _ToolCall(BaseModel):
    id: str | None = None
    function: _Function


class _Message(BaseModel):
    content: str | list[dict[str, JsonValue]] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: tuple[JsonValue, ...] | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = Field(default=None, max_length=REASON_CHARACTERS)


class ListedModel(BaseModel):
    """A model in a server's list."""

    id: str
    max_model_len: JsonValue = None


class _ModelList(BaseModel):
    data: tuple[ListedModel, ...]


class Completion(BaseModel):
    """The fields of a chat completion that Clotho keeps."""

    choices: list[_Choice] = []
    usage: ReportedUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    error: JsonValue = None

    @property
    def finish_reason(self) -> str | None:
        return self.choices[0].finish_reason

    def token_usage(self) -> Usage:
        usage = self.usage or ReportedUsage()
        return Usage(
            prompt_tokens=usage.prompt_tokens or 0,
            completion_tokens=usage.completion_tokens or 0,
            cached_prompt_tokens=usage.cached_prompt_tokens,
        )

    def reasoning_details(self) -> tuple[JsonValue, ...]:
        """The server's reasoning details, without numbers that aren't finite, which the journal can't hold."""
        details = json.dumps(self.choices[0].message.reasoning_details or ())
        return tuple(json.loads(details, parse_constant=lambda _: None))

    def answer(self, key: str, tools_offered: bool) -> tuple[ChatMessage, CallDefects]:
        """The assistant's message. Calls left in the text are read from it; those without an id get one."""
        sampled = self.choices[0].message
        content = sampled.content if sampled.content is not None else sampled.refusal
        if isinstance(content, list):
            content = "".join(text for part in content if isinstance(text := part.get("text"), str))
        calls = tuple(_named(key, index, call) for index, call in enumerate(sampled.tool_calls or ()))
        defects = CallDefects()
        if not calls and tools_offered and content and hermes.OPENING in content:
            answer = parser("hermes").parse(content)
            content, defects = answer.content, answer.defects
            calls = tuple(
                ToolCall(id=_invented_id(key, index), function=call.function)
                for index, call in enumerate(answer.calls)
            )
        reasoning = sampled.reasoning_content or sampled.reasoning or next(_detail_texts(sampled), None)
        message = ChatMessage(
            role="assistant", content=content, reasoning_content=reasoning, tool_calls=calls
        )
        return message, defects


def read_completion(body: bytes) -> Completion:
    """Parse a completion; raises ModelUnavailable for a body without an answer, or its embedded error."""
    try:
        completion = Completion.model_validate_json(body)
    except ValidationError as invalid:
        raise ModelUnavailable(
            f"the model server's answer is not a chat completion: {first_fault(invalid)}"
        ) from None
    if completion.choices and completion.finish_reason not in UNFINISHED:
        return completion
    # some proxies answer 200 with the provider's error within
    if isinstance(completion.error, dict):
        raise refusal(status_within(completion.error), {}, body[:ERROR_BYTES].decode(errors="replace"))
    reason = completion.finish_reason if completion.choices else "no choices"
    raise ModelUnavailable(f"the model server's answer is empty or unfinished: {reason}")


async def listed_models(http: ModelHTTP, base_url: str) -> tuple[ListedModel, ...] | None:
    """The models that a server lists; None where it has no list. Raises ModelRejected for anything else."""
    body = await http.get(f"{base_url}/models")
    try:
        return _ModelList.model_validate_json(body).data if body is not None else None
    except ValidationError:
        # not an outage: a web page at the wrong URL would be asked for ever
        raise ModelRejected("no OpenAI-compatible API answers here: such URLs mostly end in /v1") from None


def _detail_texts(sampled: _Message) -> Iterator[str]:
    for detail in sampled.reasoning_details or ():
        if isinstance(detail, dict) and isinstance(text := detail.get("text"), str) and text:
            yield text


def _named(key: str, index: int, call: _ToolCall) -> ToolCall:
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    id = call.id if call.id and len(call.id) <= ID_CHARACTERS else None
    return ToolCall(
        id=id or _invented_id(key, index),
        function=FunctionCall(name=call.function.name or "", arguments=arguments),
    )


def _invented_id(key: str, index: int) -> str:
    return f"call_{job_key(key, index)[:24]}"
