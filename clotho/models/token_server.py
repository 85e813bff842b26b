"""Token ids in, token ids out: what every token-exact endpoint is asked for, and what its answers must hold."""

import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field, JsonValue

from clotho.errors import InexactTokens, InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.models.backend import Inference, VersionSpan
from clotho.models.sampling import Sampling

LEAST_LOGPROB = -9_000.0
"""vLLM writes minus infinity as -9999."""
ROUNDING = 1e-3
"""By which a logprob may exceed 0."""
MOST_TOKENS = 1_000_000_000
"""Far more than any context holds."""
Count = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
"""Of tokens, as a server says it; also an id or a position among them."""
StopReason = Count | Annotated[str, Field(max_length=1_000)]
REASON_LIMIT = 100
VERSION_LIMIT = 200
"""Characters of a weight version's name."""
MASKED = 4_000_000
"""Ids in the sampling masks of a turn."""
EXPLICIT = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed")
NEUTRAL: dict[str, JsonValue] = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "skip_special_tokens": False,
}
"""Sent unless `extra_body` says otherwise: servers have defaults for these too, and stop strings may be tokens."""


class TokenRequest(FrozenModel):
    """A prompt to continue. Every field of `sampling` is set."""

    key: str
    """Sent as Idempotency-Key."""
    model: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    cache_salt: str | None = None
    """Prompts computed under another salt aren't reused: the weights' version, where it is known."""


@dataclass(frozen=True)
class TokenChunk:
    """What a stream brings at once, in any size; the last one has a finish_reason."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    versions: tuple[VersionSpan, ...] = ()
    """Counted from this request's first token; what was said of the same tokens before, it replaces."""
    sampled: int | None = None
    """How many tokens the server says that it has sampled for this request so far."""
    cached_prompt_tokens: int = 0
    system_fingerprint: str | None = None
    sampling_mask: tuple[tuple[int, ...], ...] = ()
    routed_experts: str | None = None


class TokenServer(Protocol):
    """One token-exact endpoint of one model server."""

    inference: Inference

    def stream(self, request: TokenRequest) -> AsyncGenerator[TokenChunk]:
        """Sample until an ending. Close the generator to cancel.

        Raises ModelUnavailable, ModelRejected, ContextOverflow, and InexactTokens for what can't be trained on.
        """


def paired(
    ids: Sequence[int] | None, logprobs: Sequence[float | None] | None
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Ids and logprobs that belong together; raises InexactTokens for all that can't be trained on."""
    if ids is None:
        raise InexactTokens("the model server returns no token ids")
    if logprobs is None:
        if ids:
            raise InexactTokens("the model server returns no logprobs")
        return (), ()
    if len(logprobs) != len(ids):
        raise InexactTokens(f"the model server returns {len(ids)} token ids with {len(logprobs)} logprobs")
    checked = []
    for logprob in logprobs:
        if logprob is None or not math.isfinite(logprob) or not LEAST_LOGPROB < logprob <= ROUNDING:
            raise InexactTokens(f"the model server returns a logprob of {logprob}")
        checked.append(min(logprob, 0.0))
    return tuple(ids), tuple(checked)


def sampling_fields(request: TokenRequest) -> dict[str, JsonValue]:
    """The sampling parameters in vLLM's names, none left to a server's default.

    Raises InvalidInput where one isn't set, or `extra_body` sets one: what was sent must be what is recorded.
    """
    sampling = request.sampling
    fields: dict[str, JsonValue] = {name: getattr(sampling, name) for name in EXPLICIT}
    if unset := [name for name, value in fields.items() if value is None]:
        raise InvalidInput(f"token-exact inference needs every sampling parameter, not without {unset[0]}")
    fields["stop"] = list(sampling.stop)
    fields["stop_token_ids"] = list(sampling.stop_token_ids)
    if taken := fields.keys() & sampling.extra_body.keys():
        raise InvalidInput(f"extra_body can't set {', '.join(sorted(taken))} of token-exact inference")
    return NEUTRAL | sampling.extra_body | fields
