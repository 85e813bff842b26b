"""Requests to token-exact endpoints, and the checks of their answers."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import JsonValue

from clotho.errors import InexactTokens, InvalidInput, ModelUnavailable
from clotho.frozen_model import FrozenModel
from clotho.models.backend import Inference, VersionSpan
from clotho.models.model_http import ModelHTTP
from clotho.models.sampling import Sampling

LEAST_LOGPROB = -9_000.0
"""vLLM writes minus infinity as -9999."""
ROUNDING = 1e-3
"""Amount by which a logprob may exceed 0."""
EXPLICIT = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed")
NEUTRAL: dict[str, JsonValue] = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "skip_special_tokens": False,
}
"""Sent unless `extra_body` overrides them: servers have defaults for these too, and stop strings may be tokens."""


class TokenRequest(FrozenModel):
    """A prompt to continue. Every field of `sampling` is set."""

    key: str
    """Sent as Idempotency-Key."""
    model: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    cache_salt: str | None = None
    """Prompts cached under another salt aren't reused: the weights' version, if known."""


@dataclass(frozen=True)
class TokenChunk:
    """A part of a stream, of any size; the last one has a finish_reason."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    versions: tuple[VersionSpan, ...] = ()
    """Counted from this request's first token; they override earlier spans of the same tokens."""
    sampled: int | None = None
    """Tokens sampled for this request so far, as the server counts them."""
    cached_prompt_tokens: int = 0
    system_fingerprint: str | None = None


class TokenServer(ABC):
    """One token-exact endpoint of one model server."""

    inference: Inference
    path: str
    salt_field = "cache_salt"

    def __init__(self, http: ModelHTTP) -> None:
        self._http = http

    @abstractmethod
    def body(self, request: TokenRequest) -> dict[str, JsonValue]:
        """The body of the request, without the salt."""

    @abstractmethod
    def chunk(self, event: bytes, request: TokenRequest, seen: int) -> TokenChunk:
        """Read an event of the stream, after the server reported `seen` sampled tokens."""

    async def stream(self, request: TokenRequest) -> AsyncGenerator[TokenChunk]:
        """Sample until an ending. Close the generator to cancel.

        Raises ModelUnavailable, ModelRejected, ContextOverflow, and InexactTokens for what can't be trained on.
        """
        body = self.body(request)
        if request.cache_salt is not None:
            body[self.salt_field] = request.cache_salt
        url = f"{self._http.root}{self.path}"
        events = self._http.events(url, body, request.key, request.sampling.max_tokens)
        seen = 0
        loop = asyncio.get_running_loop()
        seconds = self._http.first_token_seconds
        deadline: float | None = loop.time() + seconds
        async with self._http.errors(), aclosing(events):
            while True:
                try:
                    # What keeps the connection alive, such as comments, is no token.
                    async with asyncio.timeout_at(deadline):
                        event = await anext(events)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise ModelUnavailable(f"no token from the model server within {seconds:g} s") from None
                chunk = self.chunk(event, request, seen)
                # from here on the connection's own time-outs hold: of a silence, and of the whole answer
                if chunk.ids or chunk.finish_reason is not None:
                    deadline = None
                yield chunk
                seen = seen if chunk.sampled is None else chunk.sampled


def paired(
    ids: Sequence[int] | None, logprobs: Sequence[float | None] | None
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Check ids and logprobs against each other; raises InexactTokens for any that can't be trained on."""
    if ids is None:
        raise InexactTokens("the model server returns no token ids")
    if logprobs is None:
        if ids:
            raise InexactTokens("the model server returns no logprobs")
        return (), ()
    # which token a logprob is missing for can't be known: all would be trained on wrongly
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

    Raises InvalidInput if one isn't set, or `extra_body` sets one: the recorded parameters are those sent.
    """
    sampling = request.sampling
    fields: dict[str, JsonValue] = {name: getattr(sampling, name) for name in EXPLICIT}
    if unset := [name for name, value in fields.items() if value is None]:
        raise InvalidInput(f"token-exact inference needs every sampling parameter, not without {unset[0]}")
    fields["stop"] = list(sampling.stop)
    fields["stop_token_ids"] = list(sampling.stop_token_ids)
    if taken := fields.keys() & sampling.extra_body.keys():
        raise InvalidInput(f"extra_body can't set {', '.join(sorted(taken))} of token-exact inference")
    # `fields` come last: what is recorded is what was sent
    return NEUTRAL | sampling.extra_body | fields
