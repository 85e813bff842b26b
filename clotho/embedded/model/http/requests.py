"""The bodies that the endpoints accept: unknown fields are ignored, values that can't be honoured are refused."""

import secrets
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import from_json

from clotho.embedded.model.sampling import SamplingParameters
from clotho.embedded.model.tokenizer import Templated

MOST_ALTERNATIVES = 20
MOST_CANDIDATES = 100
"""Most alternatives reported at each position of a prompt."""
DEFAULT_MAX_TOKENS = 16
"""Default for text completions, as in the OpenAI API; elsewhere it is the room left in the context."""


StopText = Annotated[str, Field(min_length=1, max_length=500)]
"""Every token is compared with the beginnings of all of them."""


class Body(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


def only(neutral: float) -> Callable[[float | None], float | None]:
    def check(value: float | None) -> float | None:
        if value not in (None, neutral):
            raise ValueError(f"this model server supports {neutral} only")
        return value

    return check


class SamplingFields(Body):
    """The sampling fields of a request; null is the same as leaving a field out."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=16)] | None = None
    stop_token_ids: list[Annotated[int, Field(ge=0)]] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    n: Annotated[int | None, AfterValidator(only(1))] = None
    presence_penalty: Annotated[float | None, AfterValidator(only(0))] = None
    frequency_penalty: Annotated[float | None, AfterValidator(only(0))] = None
    repetition_penalty: Annotated[float | None, AfterValidator(only(1))] = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None

    def parameters(self, max_tokens: int, alternatives: int) -> SamplingParameters:
        """The sampling parameters of the request, with a random seed if it names none."""
        return SamplingParameters(
            # the answer's body names it, so that a client can repeat the answer
            seed=secrets.randbits(63) if self.seed is None else self.seed,
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(self.top_k or 0, 0),
            min_p=self.min_p or 0.0,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            stop_token_ids=frozenset(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
            min_tokens=self.min_tokens or 0,
            include_stop_text=bool(self.include_stop_str_in_output),
            keep_special_tokens=self.skip_special_tokens is False,
            alternatives=alternatives,
        )


class StreamOptions(Body):
    include_usage: bool | None = None


class Streamed(Body):
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class TextPart(Body):
    type: Literal["text"]
    text: str


Content = str | list[TextPart]


class SpokenMessage(Body):
    role: Literal["system", "developer", "user", "tool"]
    content: Content

    def templated(self) -> Templated:
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": joined(self.content)}


class CalledFunction(Body):
    name: str
    arguments: str


class Call(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction

    def templated(self) -> Templated:
        return {
            "id": self.id,
            "type": self.type,
            "function": {"name": self.function.name, "arguments": parsed(self.function.arguments)},
        }


class AssistantMessage(Body):
    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: list[Call] | None = None

    def templated(self) -> Templated:
        message: Templated = {"role": self.role, "content": joined(self.content or "")}
        if self.tool_calls:
            message["tool_calls"] = [call.templated() for call in self.tool_calls]
        return message


class Function(Body):
    name: str
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function

    def templated(self) -> Templated:
        function = self.function.model_dump(exclude_none=True)
        function["parameters"] = {"type": "object", "properties": {}} | (self.function.parameters or {})
        return {"type": self.type, "function": function}


class ResponseFormat(Body):
    type: Literal["text"]


class ChatRequest(SamplingFields, Streamed):
    messages: Annotated[
        list[Annotated[SpokenMessage | AssistantMessage, Field(discriminator="role")]], Field(min_length=1)
    ]
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    response_format: ResponseFormat | None = None
    return_token_ids: bool | None = None

    @model_validator(mode="after")
    def _alternatives_need_logprobs(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        return self


class CompletionRequest(SamplingFields, Streamed):
    prompt: Annotated[str, Field(min_length=1)] | Annotated[list[int], Field(min_length=1)]
    logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=MOST_CANDIDATES)] | None = None
    echo: Literal[False] | None = None
    best_of: Annotated[int | None, AfterValidator(only(1))] = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None


class TokenSampling(SamplingFields):
    logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None


class GenerateRequest(Streamed):
    token_ids: Annotated[list[int], Field(min_length=1)]
    sampling_params: TokenSampling = TokenSampling()
    request_id: Annotated[str, Field(max_length=256)] | None = None


class RpcRequest(Body):
    method: Literal["reload_weights"]


def joined(content: Content) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def parsed(arguments: str) -> JsonValue:
    """The value that call arguments encode; the text itself where a model got its JSON wrong."""
    try:
        value: JsonValue = from_json(arguments)
    except ValueError:
        return arguments
    return value
