"""One model call: its request, the sampled turn, and the protocol between them."""

from typing import Literal, Protocol
from urllib.parse import urlsplit

from clotho_client.orders import Inference as Inference
from clotho_client.rows import LogprobsMode as LogprobsMode
from clotho_client.rows import VersionSpan as VersionSpan
from pydantic import JsonValue

from clotho.errors import InvalidInput
from clotho.escaping import for_line
from clotho.frozen_model import FrozenModel
from clotho.models.messages import CallDefects, ChatMessage, ToolSchema
from clotho.models.sampling import Sampling

UNNAMED = "default"
"""The name that vLLM and SGLang give weights without a version."""
STEP = "step:"


class Usage(FrozenModel):
    """Token counts as the server reports them; zeros where it reports none."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0


def at_step(step: int) -> str:
    """The version named after the trainer's step, if the server names none."""
    return f"{STEP}{step}"


def step_of(version: str) -> int | None:
    """The trainer's step of a version; None if it is no number."""
    number = version.removeprefix(STEP)
    return int(number) if number.isdecimal() else None


class SampledTokens(FrozenModel):
    """The tokens of a turn as the server consumed and sampled them. Only token-exact backends know them."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """One per element of `ids`, natural logarithm."""
    logprobs_mode: LogprobsMode
    versions: tuple[VersionSpan, ...] = ()
    """Spans of known weight versions, in order."""
    resumed_at: tuple[int, ...] = ()
    """Offsets in `ids` at which the turn was interrupted and continued with another seed (`derived_seed`)
    unless the server's random numbers belong to positions."""
    backend: Inference = Inference.TOKENS
    """The endpoint that sampled them last; TOKENS if unknown."""


class PriorTurn(FrozenModel):
    """A conversation up to and including a sampled turn, and the tokens that it was."""

    messages: tuple[ChatMessage, ...]
    tokens: SampledTokens


class TurnCall(FrozenModel):
    """One turn to sample."""

    key: str
    """The turn's journal key, sent as Idempotency-Key."""
    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...] = ()
    sampling: Sampling = Sampling()
    prior: PriorTurn | None = None
    """The last turn with known tokens, which token-exact backends extend."""
    trainer_step: int | None = None
    """The trainer's last known step: stands for the weights' version if the server names none."""


class SampledTurn(FrozenModel):
    """A model's answer to a TurnCall."""

    message: ChatMessage
    finish_reason: str | None
    """The server's finish reason: stop, tool_calls, length, …"""
    stop_reason: int | str | None = None
    """The stop token or string that was met, if the server reports it."""
    usage: Usage
    model: str
    """The model's name, as the server reports it."""
    sampling: Sampling
    """The sampling parameters that were sent."""
    started: float
    """Unix seconds."""
    seconds: float
    """Seconds from the request to the whole answer."""
    system_fingerprint: str | None = None
    provider_request_id: str | None = None
    reasoning_details: tuple[JsonValue, ...] = ()
    """Structured reasoning of providers that have it, verbatim."""
    tokens: SampledTokens | None = None
    defects: CallDefects = CallDefects()


class ServerCapabilities(FrozenModel):
    """The capabilities of a token-exact server, found by probing it."""

    backend: Inference
    base_url: str
    renderer: str
    """The renderer that the tokenizer's name was resolved to."""
    logprobs_mode: LogprobsMode
    rng_scope: Literal["position", "sequence"]
    """Scope of a seed's random numbers: absolute positions, or a request's tokens in order."""
    context: int | None
    """Tokens of prompt and answer together, if the server reports it."""
    weight_version: str | None


class ModelBackend(Protocol):
    """Samples turns from one model server."""

    async def sample_turn(self, call: TurnCall) -> SampledTurn:
        """Sample one assistant message, without retries.

        Raises ModelUnavailable, ModelRejected, ContextOverflow or InexactTokens.
        """

    @property
    def capabilities(self) -> ServerCapabilities | None:
        """Capabilities of a token-exact server, once a turn was sampled or a model checked."""

    async def check(self, model: str) -> ServerCapabilities | None:
        """Raise what every turn of `model` would raise: an unknown model, a refused key, no server.

        Token-exact backends return their capabilities.
        """


def checked_base_url(url: str) -> str:
    """`url` without a slash at its end; raises InvalidInput for one that may hold a key, without repeating it."""
    if "@" in url:
        raise InvalidInput(
            "the model server's URL holds credentials: leave them out, and name the environment variable that "
            "holds the key with --api-key-env"
        )
    if "?" in url or "#" in url:
        raise InvalidInput(
            "the model server's URL ends in a query (?…) or a fragment (#…), which may hold a key: leave it out, "
            "and name the environment variable that holds the key with --api-key-env"
        )
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise InvalidInput(
            f"{for_line(url)!r} is no URL of a model server: give one such as http://host:8000/v1"
        )
    return url.rstrip("/")
