"""Requests and answers of the rollout API."""

import math
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from clotho_client.message import Answer, Message
from clotho_client.rows import Disturbance, TrainingRow

Item = dict[str, JsonValue]
"""An item of a dataset, as the environment takes it."""


class Inference(StrEnum):
    """The endpoint that samples turns. A run is in token mode with all but `CHAT`: its tokens are known exactly.

    `TOKENS` takes the first token-exact one that the server has.
    """

    CHAT = "chat"
    TOKENS = "tokens"
    VLLM_GENERATE = "vllm-generate"
    VLLM_COMPLETIONS = "vllm-completions"
    SGLANG = "sglang"


class Endpoint(Message):
    """The servers of a run's model: may change between restarts, the last entry counts."""

    base_url: str
    more_urls: tuple[str, ...] = ()
    """URLs of further servers of the same model."""
    weights: tuple[float, ...] = ()
    """The share of the rollouts that each server gets, relative to the others'; none: all the same."""
    api_key_variable: str | None = None
    """The environment variable that holds the key, in the processes that call models."""
    inference: Inference = Inference.CHAT

    @model_validator(mode="after")
    def _checked_weights(self) -> Self:
        if self.weights and len(self.weights) != 1 + len(self.more_urls):
            raise ValueError("weights has a number for each server, or none")
        if not all(0 < weight < math.inf for weight in self.weights):
            raise ValueError("a weight is a number above 0")
        return self


class Rendering(Message):
    """The names of a run's tokenizer, renderer and parser of tool calls."""

    tokenizer: str = ""
    """A name on the Hugging Face hub, a folder where models are called from, or clotho-tiny. Empty: the model's."""
    renderer: str | None = None
    tool_call_parser: str | None = None
    """The parser's name. None: that of the model's architecture."""
    thinking_mode: bool = False


class RunOrder(Message):
    """A run whose groups will be ordered. All but `endpoint` may not change once it has groups."""

    environment: str
    """A module in environments/, or module:Class, as workers import it."""
    environment_config: dict[str, JsonValue] = {}
    """Fields of the environment's configuration."""
    agent: str = "model"
    """The agent: model, or a program with a loop of its own."""
    model: str
    """The model's name, as its server knows it."""
    endpoint: Endpoint
    """The model's servers; the last one given counts."""
    rendering: Rendering = Rendering()
    """The tokenizer, renderer and parser of tool calls."""
    temperature: float | None = None
    """Sampling temperature; none: the environment's."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens that one turn may sample; none: the environment's."""
    group_size: Annotated[int, Field(ge=1)]
    """Rollouts of each group."""
    seed: int = 0
    """Seeds of all rollouts derive from it."""
    settings: dict[str, JsonValue] = {}
    """Sandbox, limits and rewards, as `clotho run` takes them, but for what would run on a host."""


class GroupOrder(Message):
    """An item to roll out as one group."""

    item: Item
    """The item, as the environment takes it."""
    step: Annotated[int, Field(ge=0)] | None = None
    """The trainer's step, by which weights go whose server names no version."""


class ClaimOrder(GroupOrder):
    """The next group of a sequence, for a caller that has no names of its own."""

    key: Annotated[str, Field(min_length=1)]
    """The sequence: whatever tells its groups from others of the same run."""
    life: str
    """The caller's life: within one, each claim has a group of its own; the next life gets them again, in order."""


class OrderState(StrEnum):
    OPEN = "open"
    FINISHED = "finished"
    REFUSED = "refused"


class GroupAnswer(Answer):
    """The state of an ordered group."""

    name: str
    """The name that it was ordered by."""
    group: str
    """The group's id."""
    state: OrderState
    """`open` until it is scored; `refused` where there is nothing to train on, and never will be."""
    acknowledged: bool = False
    """Whether its rows were acknowledged."""
    reason: str | None = None
    """Why it is refused, in one word; or why it is still open, if it met a failure."""
    detail: str = ""
    """The same in full."""
    rows: tuple[TrainingRow, ...] | None = None
    """The rows of a finished group, those of a rollout side by side."""


class Fetch(Message):
    """How the rows of a group are asked for."""

    wait: Annotated[float, Field(ge=0, le=300)] = 0.0
    """Seconds to wait for the group."""
    step: int | None = None
    """The trainer's step, for `max_lag`."""
    max_lag: Annotated[int, Field(ge=0)] | None = None
    """Steps that the oldest token's weights may be behind; needs `step`."""
    exclude: tuple[Disturbance, ...] = ()
    """Rollouts whose tokens are left out, by what happened to them. Their rewards stay."""

    @model_validator(mode="after")
    def _bound_has_a_step(self) -> Self:
        if self.max_lag is not None and self.step is None:
            raise ValueError("max_lag needs step")
        return self


class OrderedGroups(Answer):
    """The names of a run's groups that are neither acknowledged nor refused, in the order of ordering."""

    names: tuple[str, ...]


class Failure(Answer):
    """A request that wasn't served."""

    error: str
    """What to change, or what is away."""
