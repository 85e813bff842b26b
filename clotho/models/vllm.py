"""vLLM's two ways to sample from token ids: /inference/v1/generate, and /v1/completions with ids.

Shapes as of vLLM 0.32. A server's generation_config applies on the one and not on the other: nothing is left out.
"""

from dataclasses import replace

from pydantic import BaseModel, Field, JsonValue

from clotho.errors import InexactTokens
from clotho.models.answers import REASON_CHARACTERS, ReportedUsage, StopReason
from clotho.models.backend import UNNAMED, Inference, VersionSpan
from clotho.models.model_http import raise_embedded, read_event
from clotho.models.token_server import TokenChunk, TokenRequest, TokenServer, paired, sampling_fields

COUNTED: dict[str, JsonValue] = {"include_usage": True, "continuous_usage_stats": True}
"""Counts in every event: a lost id is noticed before later ones are written ahead."""


class _Sampled(BaseModel):
    token_id: int
    logprob: float | None


class _Logprobs(BaseModel):
    content: list[_Sampled] | None = None
    """Logprobs of /inference/v1/generate."""
    token_logprobs: list[float | None] | None = None
    """Logprobs of /v1/completions."""

    def of(self, token_ids: list[int] | None) -> list[float | None] | None:
        if self.content is None:
            return self.token_logprobs
        if [each.token_id for each in self.content] != token_ids:
            raise InexactTokens("the model server returns logprobs of other tokens than it sampled")
        return [each.logprob for each in self.content]


class _Choice(BaseModel):
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = Field(default=None, max_length=REASON_CHARACTERS)
    stop_reason: StopReason | None = None
    weight_versions: list[VersionSpan] | None = None

    def chunk(self, request: TokenRequest) -> TokenChunk:
        if self.prompt_token_ids is not None and tuple(self.prompt_token_ids) != request.prompt_ids:
            raise InexactTokens("the model server read another prompt than it was given")
        ids, logprobs = paired(self.token_ids, self.logprobs.of(self.token_ids) if self.logprobs else None)
        return TokenChunk(
            ids=ids,
            logprobs=logprobs,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            # weights that nobody has named keep this name when they change: it is no version
            versions=tuple(span for span in self.weight_versions or () if span.version != UNNAMED),
        )


class _Event(BaseModel):
    choices: list[_Choice] = []
    usage: ReportedUsage | None = None
    system_fingerprint: str | None = None
    error: JsonValue = None


class _VLLM(TokenServer):
    def chunk(self, event: bytes, request: TokenRequest, seen: int) -> TokenChunk:
        read = read_event(_Event, event)
        # first: what a server sends along with its error says less
        raise_embedded(read.error)
        chunk = read.choices[0].chunk(request) if read.choices else TokenChunk()
        usage = read.usage or ReportedUsage()
        return replace(
            chunk,
            sampled=usage.completion_tokens,
            cached_prompt_tokens=usage.cached_prompt_tokens,
            system_fingerprint=read.system_fingerprint,
        )


class VLLMGenerate(_VLLM):
    """/inference/v1/generate, of a vLLM started with --enable-scale-out."""

    inference = Inference.VLLM_GENERATE
    path = "/inference/v1/generate"

    def body(self, request: TokenRequest) -> dict[str, JsonValue]:
        return {
            "model": request.model,
            "token_ids": list(request.prompt_ids),
            # logprobs of 0 alternatives: of the sampled token alone
            "sampling_params": sampling_fields(request) | {"logprobs": 0, "n": 1},
            "stream": True,
            "stream_options": dict(COUNTED),
        }


class VLLMCompletions(_VLLM):
    """/v1/completions with ids: of every vLLM."""

    inference = Inference.VLLM_COMPLETIONS
    path = "/v1/completions"

    def body(self, request: TokenRequest) -> dict[str, JsonValue]:
        return sampling_fields(request) | {
            "model": request.model,
            "prompt": list(request.prompt_ids),
            "n": 1,
            "logprobs": 0,
            "return_token_ids": True,
            "stream": True,
            "stream_options": dict(COUNTED),
        }
