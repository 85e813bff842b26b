"""The bodies that the endpoints answer with, in the shapes of the OpenAI API and vLLM 0.32."""

from typing import Literal

from pydantic import BaseModel, JsonValue, SerializerFunctionWrapHandler, model_serializer

FinishReason = Literal["stop", "length", "tool_calls"]


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class WeightVersion(BaseModel):
    """Tokens [start, end) of the choice were sampled from weights `version`."""

    version: str
    start: int
    end: int


class ChatAlternative(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(ChatAlternative):
    top_logprobs: list[ChatAlternative]


class ChatLogprobs(BaseModel):
    content: list[ChatLogprob]


class FunctionAnswer(BaseModel):
    name: str
    arguments: str


class ToolCallAnswer(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: FunctionAnswer


class AssistantAnswer(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[ToolCallAnswer] | None = None


class ChatChoice(BaseModel):
    index: int = 0
    message: AssistantAnswer
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: int | str | None
    token_ids: list[int] | None
    weight_versions: list[WeightVersion]


class Identity(BaseModel):
    """What every OpenAI answer and chunk starts with; `seed` is the one that was sampled with."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    seed: int


class ChatCompletion(Identity):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None


class ToolCallDelta(ToolCallAnswer):
    index: int


class Delta(BaseModel):
    """What a chunk adds to the message: only the fields that are set are written."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None

    @model_serializer(mode="wrap")
    def _without_nulls(self, serialize: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        return {name: value for name, value in serialize(self).items() if value is not None}


class ChatChunkChoice(BaseModel):
    index: int = 0
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    weight_versions: list[WeightVersion] | None = None


class ChatChunk(Identity):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None


class CompletionLogprobs(BaseModel):
    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class Candidate(BaseModel):
    logprob: float
    rank: int
    decoded_token: str


class CompletionChoice(BaseModel):
    index: int = 0
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None
    token_ids: list[int] | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: list[dict[int, Candidate] | None] | None
    """For each token of the prompt what else might stand there, by token id; None for the first."""
    weight_versions: list[WeightVersion] | None


class Completion(Identity):
    """A whole answer, and in a stream each chunk of it."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    usage: Usage | None = None


class TokenAlternative(BaseModel):
    token_id: int
    logprob: float
    rank: int


class TokenLogprob(TokenAlternative):
    top_logprobs: list[TokenAlternative]


class TokenLogprobs(BaseModel):
    content: list[TokenLogprob]


class GeneratedChoice(BaseModel):
    index: int = 0
    token_ids: list[int]
    logprobs: TokenLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None
    weight_versions: list[WeightVersion] | None


class Generated(BaseModel):
    """A whole answer, and in a stream each chunk of it."""

    request_id: str
    model: str
    created: int
    seed: int
    output_mode: Literal["tokens"] = "tokens"
    choices: list[GeneratedChoice]
    usage: Usage | None = None


class ModelCard(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["clotho"] = "clotho"
    root: str
    parent: None = None
    max_model_len: int


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class RpcResults(BaseModel):
    """What each of the engine's processes, here one, made of a call."""

    results: list[str]


class Health(BaseModel):
    status: Literal["ok", "stopped"]
    model: str
    weight_version: str
    open_requests: int
