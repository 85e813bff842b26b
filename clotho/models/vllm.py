"""vLLM's two ways to sample from token ids: /inference/v1/generate, and /v1/completions with ids.

Shapes as of vLLM 0.32. A server's generation_config applies on the one and not on the other: nothing is left out.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from pydantic import BaseModel, Field, JsonValue

from clotho.errors import InexactTokens
from clotho.models.backend import Inference, VersionSpan
from clotho.models.model_http import ModelHTTP, raise_embedded, read_event
from clotho.models.token_server import (
    REASON_CHARACTERS,
    Count,
    StopReason,
    TokenChunk,
    TokenRequest,
    paired,
    sampling_fields,
)
from clotho.models.weight_versions import UNNAMED

COUNTED: dict[str, JsonValue] = {"include_usage": True, "continuous_usage_stats": True}
"""Counts in every event: a lost id is noticed before later ones are written ahead."""


class _Cached(BaseModel):
    cached_tokens: Count | None = None


class _Usage(BaseModel):
    completion_tokens: Count | None = None
    prompt_tokens_details: _Cached | None = None


class _Event(BaseModel):
    usage: _Usage | None = None
    system_fingerprint: str | None = None
    error: JsonValue = None

    def counted(self, chunk: TokenChunk | None) -> TokenChunk:
        """`chunk`, or an empty one, with the event's other fields."""
        raise_embedded(self.error)
        usage = self.usage or _Usage()
        return replace(
            chunk or TokenChunk(),
            sampled=usage.completion_tokens,
            cached_prompt_tokens=(usage.prompt_tokens_details or _Cached()).cached_tokens or 0,
            system_fingerprint=self.system_fingerprint,
        )


class _Sampled(BaseModel):
    token_id: int
    logprob: float | None


class _TokenLogprobs(BaseModel):
    content: list[_Sampled] | None = None


class _GeneratedChoice(BaseModel):
    token_ids: list[int] | None = None
    logprobs: _TokenLogprobs | None = None
    finish_reason: str | None = Field(default=None, max_length=REASON_CHARACTERS)
    stop_reason: StopReason | None = None
    weight_versions: list[VersionSpan] | None = None
    sampling_mask: list[tuple[int, ...]] | None = None
    routed_experts: str | None = None

    def chunk(self) -> TokenChunk:
        content = self.logprobs.content if self.logprobs else None
        if content is not None and [each.token_id for each in content] != self.token_ids:
            raise InexactTokens("the model server returns logprobs of other tokens than it sampled")
        ids, logprobs = paired(
            self.token_ids, None if content is None else [each.logprob for each in content]
        )
        return TokenChunk(
            ids=ids,
            logprobs=logprobs,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            versions=_named(self.weight_versions),
            sampling_mask=tuple(self.sampling_mask or ()),
            routed_experts=self.routed_experts,
        )


class _Generated(_Event):
    choices: list[_GeneratedChoice] = []


class VLLMGenerate:
    """/inference/v1/generate, of a vLLM started with --enable-scale-out."""

    inference = Inference.VLLM_GENERATE

    def __init__(self, http: ModelHTTP) -> None:
        self._http = http

    async def stream(self, request: TokenRequest) -> AsyncGenerator[TokenChunk]:
        body: dict[str, JsonValue] = {
            "model": request.model,
            "token_ids": list(request.prompt_ids),
            "sampling_params": sampling_fields(request) | {"logprobs": 0, "n": 1},
            "stream": True,
            "stream_options": dict(COUNTED),
        }
        if request.cache_salt is not None:
            body["cache_salt"] = request.cache_salt
        url = f"{self._http.root}/inference/v1/generate"
        events = self._http.events(url, body, request.key, request.sampling.max_tokens)
        async with self._http.errors(), aclosing(events):
            async for content in events:
                event = read_event(_Generated, content)
                yield event.counted(event.choices[0].chunk() if event.choices else None)


class _CompletionLogprobs(BaseModel):
    token_logprobs: list[float | None] | None = None


class _CompletionChoice(BaseModel):
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _CompletionLogprobs | None = None
    finish_reason: str | None = Field(default=None, max_length=REASON_CHARACTERS)
    stop_reason: StopReason | None = None
    weight_versions: list[VersionSpan] | None = None

    def chunk(self, request: TokenRequest) -> TokenChunk:
        if self.prompt_token_ids is not None and tuple(self.prompt_token_ids) != request.prompt_ids:
            raise InexactTokens("the model server read another prompt than it was given")
        ids, logprobs = paired(self.token_ids, self.logprobs.token_logprobs if self.logprobs else None)
        return TokenChunk(
            ids=ids,
            logprobs=logprobs,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            versions=_named(self.weight_versions),
        )


class _Completion(_Event):
    choices: list[_CompletionChoice] = []


class VLLMCompletions:
    """/v1/completions with ids: of every vLLM."""

    inference = Inference.VLLM_COMPLETIONS

    def __init__(self, http: ModelHTTP) -> None:
        self._http = http

    async def stream(self, request: TokenRequest) -> AsyncGenerator[TokenChunk]:
        body: dict[str, JsonValue] = sampling_fields(request) | {
            "model": request.model,
            "prompt": list(request.prompt_ids),
            "n": 1,
            "logprobs": 0,
            "return_token_ids": True,
            "stream": True,
            "stream_options": dict(COUNTED),
        }
        if request.cache_salt is not None:
            body["cache_salt"] = request.cache_salt
        url = f"{self._http.root}/v1/completions"
        events = self._http.events(url, body, request.key, request.sampling.max_tokens)
        async with self._http.errors(), aclosing(events):
            async for content in events:
                event = read_event(_Completion, content)
                yield event.counted(event.choices[0].chunk(request) if event.choices else None)


def _named(spans: list[VersionSpan] | None) -> tuple[VersionSpan, ...]:
    return tuple(span for span in spans or () if span.version != UNNAMED)
