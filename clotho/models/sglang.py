"""SGLang's /generate with input_ids."""

from typing import Annotated

from pydantic import BaseModel, Field, JsonValue

from clotho.errors import InexactTokens, ModelUnavailable
from clotho.models.answers import REASON_CHARACTERS, Count, StopReason
from clotho.models.backend import UNNAMED, Inference, VersionSpan
from clotho.models.model_http import raise_embedded, read_event
from clotho.models.provider_errors import refusal
from clotho.models.token_server import TokenChunk, TokenRequest, TokenServer, paired, sampling_fields

RENAMED = {"max_tokens": "max_new_tokens", "seed": "sampling_seed"}


class _Finish(BaseModel):
    type: Annotated[str, Field(max_length=REASON_CHARACTERS)]
    matched: StopReason | None = None
    message: str | None = None
    status_code: int | None = Field(default=None, ge=400, lt=600)


class _Meta(BaseModel):
    output_token_logprobs: list[tuple[float | None, int, str | None]] | None = None
    completion_tokens: Count
    cached_tokens: Count = 0
    finish_reason: _Finish | None = None
    weight_version: str | None = None


class _Event(BaseModel):
    output_ids: list[int] | None = None
    meta_info: _Meta | None = None
    error: JsonValue = None


class SGLang(TokenServer):
    """SGLang's /generate. Its events repeat earlier tokens or not, by its settings: the counts tell which."""

    inference = Inference.SGLANG
    path = "/generate"
    salt_field = "extra_key"

    def body(self, request: TokenRequest) -> dict[str, JsonValue]:
        fields = {RENAMED.get(name, name): value for name, value in sampling_fields(request).items()}
        return {
            "input_ids": list(request.prompt_ids),
            "sampling_params": fields,
            "return_logprob": True,
            "stream": True,
        }

    def chunk(self, event: bytes, request: TokenRequest, seen: int) -> TokenChunk:
        read = read_event(_Event, event)
        raise_embedded(read.error)
        if read.meta_info is None:
            raise ModelUnavailable("the model server's answer is not understood: it has no meta_info")
        return _chunk(read, read.meta_info, seen)


def _chunk(event: _Event, meta: _Meta, seen: int) -> TokenChunk:
    finish = meta.finish_reason
    # a refusal within a stream that began with status 200
    if finish is not None and finish.type == "abort":
        raise refusal(finish.status_code or 502, {}, finish.message or "aborted")
    rows = _new(meta, seen)
    if event.output_ids is not None and event.output_ids[len(event.output_ids) - len(rows) :] != [
        token for _, token, _ in rows
    ]:
        raise InexactTokens("the model server returns logprobs of other tokens than it sampled")
    ids, logprobs = paired([token for _, token, _ in rows], [logprob for logprob, _, _ in rows])
    version = meta.weight_version
    return TokenChunk(
        ids=ids,
        logprobs=logprobs,
        finish_reason=finish.type if finish else None,
        stop_reason=finish.matched if finish else None,
        versions=(VersionSpan(version=version, start=seen, end=meta.completion_tokens),)
        if version not in (None, UNNAMED)
        else (),
        sampled=meta.completion_tokens,
        cached_prompt_tokens=meta.cached_tokens,
    )


def _new(meta: _Meta, seen: int) -> list[tuple[float | None, int, str | None]]:
    rows = meta.output_token_logprobs
    if rows is None:
        if meta.completion_tokens > seen:
            raise InexactTokens("the model server returns no logprobs")
        return []
    if len(rows) == meta.completion_tokens:
        return rows[seen:]
    if len(rows) == meta.completion_tokens - seen:
        return rows
    raise InexactTokens(
        f"the model server returns {len(rows)} logprobs for {meta.completion_tokens} sampled tokens"
    )
