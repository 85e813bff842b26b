"""Chat mode: turns sampled through any OpenAI-compatible server, without token ids."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import anyio._backends._asyncio  # noqa: F401  # openai imports it at its first request, on the event loop
import httpx  # noqa: F401  # openai looks into it at each request once it is there, half loaded by another thread too
import httpx2
import openai
from pydantic import BaseModel, Field, JsonValue, ValidationError

from clotho.errors import ClothoError, ModelUnavailable
from clotho.identifiers.ids import job_key
from clotho.models.answers import ERROR_BYTES, REASON_CHARACTERS, UNFINISHED, ReportedUsage, printable_name
from clotho.models.backend import SampledTurn, TurnCall, Usage
from clotho.models.listed_models import listed_models
from clotho.models.messages import CallDefects, ChatMessage, FunctionCall, ToolCall
from clotho.models.model_http import ModelHTTP, first_fault, status_within
from clotho.models.provider_errors import refusal
from clotho.models.sampling import Sampling
from clotho.models.tool_call_parsers import hermes, parser

ONE_TOKEN = Sampling(top_k=None, min_p=None, repetition_penalty=None, max_tokens=1)
# the client isn't made without a key
KEY = "sent by ModelHTTP"
KEPT = ("content-type", "idempotency-key", "user-agent")
"""Headers of a request that are passed on; ModelHTTP adds its own."""
DECODED = ("content-encoding", "content-length", "transfer-encoding")
"""Headers of an answer that no longer apply to its decoded body."""
ID_CHARACTERS = 256
"""Characters of a tool call's id: it is sent back with every later turn."""


class OpenAIChat:
    """One model server's chat completions."""

    def __init__(self, http: ModelHTTP) -> None:
        self._http = http
        self._client = _openai_client(http)

    @property
    def capabilities(self) -> None:
        """The server's capabilities: None, since chat mode has no tokens."""

    async def sample_turn(self, call: TurnCall) -> SampledTurn:
        """Sample one assistant message, once. Raises ModelUnavailable, ModelRejected or ContextOverflow."""
        started, clock = time.time(), time.perf_counter()
        async with self._http.errors():
            answer = await self._answer(call)
            completion = read_completion(answer.content)
        message, defects = completion.answer(call.key, tools_offered=bool(call.tools))
        return SampledTurn(
            message=message,
            defects=defects,
            finish_reason=completion.finish_reason,
            usage=completion.token_usage(),
            model=self._name(completion.model) or call.model,
            sampling=call.sampling,
            started=started,
            seconds=time.perf_counter() - clock,
            system_fingerprint=self._name(completion.system_fingerprint),
            provider_request_id=self._name(answer.headers.get("x-request-id")),
            reasoning_details=completion.reasoning_details(),
        )

    async def check(self, model: str) -> None:
        """Raise what sampling from `model` would raise; a model that isn't listed is tried."""
        async with self._http.errors():
            listed = await listed_models(self._http, self._http.base_url)
        if listed is None or model in [each.id for each in listed]:
            return
        greeting = ChatMessage(role="user", content="Hello")
        await self.sample_turn(
            TurnCall(key=f"check/{model}", model=model, messages=(greeting,), sampling=ONE_TOKEN)
        )

    async def _answer(self, call: TurnCall) -> httpx2.Response:
        with self._classified(call.sampling.max_tokens):
            # By its path: the client would walk typed arguments one by one, which costs 5 ms of CPU for a
            # transcript of twenty messages, and look through all that it knows of this method.
            return await self._client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                body={"model": call.model, **request_body(call)},
                options={"headers": {"Idempotency-Key": call.key}},
            )

    @contextmanager
    def _classified(self, max_tokens: int | None) -> Iterator[None]:
        """Translate the client's errors; an error of the transport comes wrapped in one of them."""
        try:
            yield
        except openai.APIStatusError as error:
            answer = error.response
            raise refusal(
                answer.status_code, answer.headers, answer.text, max_tokens, self._http.redact
            ) from None
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, ClothoError):
                raise error.__cause__ from None
            raise

    def _name(self, name: str | None) -> str | None:
        return printable_name(self._http.redact(name)) if name else None


def request_body(call: TurnCall) -> dict[str, JsonValue]:
    """The fields of a chat completion request beside the model's name."""
    sampling = call.sampling
    body: dict[str, JsonValue] = sampling.model_dump(mode="json", exclude_none=True, exclude={"extra_body"})
    for name in ("stop", "stop_token_ids"):
        if not body[name]:
            del body[name]
    body["messages"] = [message.wire() for message in call.messages]
    if call.tools:
        body["tools"] = list(call.tools)
    return body | sampling.extra_body


class _ModelTransport(httpx2.AsyncBaseTransport):
    """Sends the client's requests by ModelHTTP, which bounds answers and takes the key out of them.

    The client itself would read an error's whole body.
    """

    def __init__(self, http: ModelHTTP) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {name: request.headers[name] for name in KEPT if name in request.headers}
        reply = await self._http.exchange(request.method, str(request.url), await request.aread(), headers)
        kept = [(name, value) for name, value in reply.headers.items() if name.lower() not in DECODED]
        return httpx2.Response(reply.status, headers=kept, content=reply.body, request=request)


def _openai_client(http: ModelHTTP) -> openai.AsyncOpenAI:
    """A client of the server that `http` reaches. It never retries: Temporal does."""
    return openai.AsyncOpenAI(
        base_url=http.base_url,
        api_key=KEY,
        max_retries=0,
        # ModelHTTP has the time-outs
        timeout=None,
        http_client=httpx2.AsyncClient(transport=_ModelTransport(http), follow_redirects=False, timeout=None),
    )


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
