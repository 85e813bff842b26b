"""One model call: what is asked, what was sampled, and the protocol between them.

Everything here is JSON by `model_dump(mode="json")`: a sampled turn goes into the journal as it is.
"""

from enum import StrEnum
from typing import Literal, Protocol
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, field_validator

from clotho.errors import InvalidInput
from clotho.escaping import for_line
from clotho.records.base import Record

ToolSchema = dict[str, JsonValue]
"""A tool as the OpenAI API describes it: {"type": "function", "function": {...}}."""

RESERVED = frozenset({"messages", "model", "n", "stream", "tools"})

RESHAPING = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "frequency_penalty",
        "guided_json",
        "logit_bias",
        "min_tokens",
        "presence_penalty",
        "structured_outputs",
    }
)
"""Further fields that servers know by which tokens are sampled from another distribution than the model's."""

LogprobsMode = Literal["raw", "processed", "unknown"]
"""Whether logprobs are of the model at temperature 1, or of the distribution that was sampled from."""


class Inference(StrEnum):
    """How turns are sampled. `TOKENS` takes the first token-exact endpoint that the server turns out to have."""

    CHAT = "chat"
    TOKENS = "tokens"
    VLLM_GENERATE = "vllm-generate"
    VLLM_COMPLETIONS = "vllm-completions"
    SGLANG = "sglang"


class FunctionCall(Record):
    name: str
    arguments: str
    """As sampled: JSON by convention, but nobody has checked it."""


class ToolCall(Record):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class CallDefects(Record):
    """Tool calls of a turn that were not run, or not as the model wrote them, by what was wrong."""

    malformed: int = 0
    """Blocks in which no call could be read."""
    truncated: int = 0
    """Calls that were cut off, and run with the arguments that were complete."""
    unoffered: int = 0
    """Calls of tools that weren't offered, which the model's parser leaves out."""
    beyond_limit: int = 0
    """Calls after as many as a turn may have."""

    @property
    def total(self) -> int:
        return self.malformed + self.truncated + self.unoffered + self.beyond_limit

    def __str__(self) -> str:
        counts = self.model_dump()
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)


class ChatMessage(Record):
    """A message in the OpenAI wire format; `wire()` is what a server is sent."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[dict[str, JsonValue], ...] | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def wire(self) -> dict[str, JsonValue]:
        """The message without its unset fields; an assistant's content stays, null or not."""
        wire: dict[str, JsonValue] = self.model_dump(
            mode="json", exclude_none=True, exclude=None if self.tool_calls else {"tool_calls"}
        )
        wire.setdefault("content", None)
        return wire


class Sampling(Record):
    """Sampling parameters. All are sent, so that no server default applies; None leaves one out.

    The defaults change nothing about the model's distribution. Providers that refuse fields outside the
    OpenAI API need top_k, min_p and repetition_penalty set to None.
    """

    temperature: float | None = 1.0
    top_p: float | None = 1.0
    top_k: int | None = -1
    """-1 is off."""
    min_p: float | None = 0.0
    repetition_penalty: float | None = 1.0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    """Token-exact backends add those that end an assistant's turn."""
    seed: int | None = None
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of the request's body, passed through; they win over the fields above."""

    @property
    def reshaped_by(self) -> tuple[str, ...]:
        """The parameters by which tokens are sampled from another distribution than the model's at temperature 1.

        A parameter that is left to the server counts as one.
        """
        reshaping = {
            "temperature": self.temperature != 1.0,
            "top_p": self.top_p != 1.0,
            "top_k": self.top_k not in (-1, 0),
            "min_p": self.min_p != 0.0,
            "repetition_penalty": self.repetition_penalty != 1.0,
        }
        own = [name for name, does in reshaping.items() if does]
        return (*own, *sorted(name for name in RESHAPING if self.extra_body.get(name)))

    @field_validator("extra_body")
    @classmethod
    def _leaves_the_turn_alone(cls, extra_body: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if taken := RESERVED & extra_body.keys():
            raise ValueError(f"extra_body can't set {', '.join(sorted(taken))}")
        return extra_body


class Usage(Record):
    """Token counts as the server reports them; zeros where it reports none."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0


class VersionSpan(Record):
    """Tokens [start, end) of a turn were sampled from weights `version`."""

    version: str
    start: int
    end: int


class SampledTokens(Record):
    """The tokens of a turn as the server consumed and sampled them. Only token-exact backends know them."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """One per element of `ids`, natural logarithm."""
    logprobs_mode: LogprobsMode
    versions: tuple[VersionSpan, ...] = ()
    """In order; the version of tokens in no span is unknown. Names as in clotho.inference.weight_versions."""
    resumed_at: tuple[int, ...] = ()
    """Where in `ids` the turn was interrupted and continued by another request, with another seed (`derived_seed`)
    unless the server's noise is keyed by position."""
    backend: Inference = Inference.TOKENS
    """Which endpoint sampled them last; TOKENS in entries that don't say."""
    sampling_mask: tuple[tuple[int, ...], ...] = ()
    """For each token those that could have been sampled, where the server says so."""
    routed_experts: str | None = None
    """As the server returned them, where it does."""


class PriorTurn(Record):
    """A conversation up to and including a sampled turn, and the tokens that it was."""

    messages: tuple[ChatMessage, ...]
    tokens: SampledTokens


class TurnCall(Record):
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
    """The trainer's, as known now: stands for the version of weights that the server has no name for."""


class SampledTurn(Record):
    """What a model answered to a TurnCall."""

    message: ChatMessage
    finish_reason: str | None
    """As reported: stop, tool_calls, length, …"""
    stop_reason: int | str | None = None
    """The stop token or string that was met, where the server says so."""
    usage: Usage
    model: str
    """As reported by the server."""
    sampling: Sampling
    """As sent."""
    started: float
    """Unix seconds."""
    seconds: float
    """From the request to the whole answer."""
    system_fingerprint: str | None = None
    provider_request_id: str | None = None
    reasoning_details: tuple[JsonValue, ...] = ()
    """Structured reasoning of providers that have it, verbatim."""
    tokens: SampledTokens | None = None
    defects: CallDefects = CallDefects()


class ServedModel(Record):
    """What a token-exact server was found to be."""

    backend: Inference
    base_url: str
    renderer: str
    """What the tokenizer's name was resolved to."""
    logprobs_mode: LogprobsMode
    noise: Literal["position", "sequence"]
    """What a seed's random numbers belong to: absolute positions, or a request's tokens in their order."""
    context: int | None
    """Tokens that prompt and answer have together, where the server says so."""
    weight_version: str | None


class ModelBackend(Protocol):
    """Samples turns from one model server."""

    async def sample_turn(self, call: TurnCall) -> SampledTurn:
        """Sample one assistant message, once: retrying is the caller's.

        Raises ModelUnavailable, ModelRejected, ContextOverflow or InexactTokens.
        """

    @property
    def found(self) -> ServedModel | None:
        """What a token-exact server was found to be, once a turn was sampled or a model checked."""

    async def check(self, model: str) -> ServedModel | None:
        """Raise now what every turn of `model` would raise: an unknown model, a refused key, no server.

        Token-exact backends return what they found.
        """


def checked_base_url(url: str) -> str:
    """`url` without a slash at its end, fit to be shown and kept; raises InvalidInput.

    What it could hold a key in is refused, and not repeated.
    """
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
