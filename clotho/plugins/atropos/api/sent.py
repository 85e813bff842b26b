"""Request bodies: atroposlib's models, with bounds on numbers and checks for what would break a whole batch.

A scored group may also have an id.
"""

import json
from typing import Annotated, TypeVar

from atroposlib.api import server
from atroposlib.api.server import ScoredData
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from clotho.listeners.refused import Refused

# a list of the wrong type makes one complaint for each of its tokens
MOST_COMPLAINTS = 8
PER_TOKEN = ("masks", "ref_logprobs", "inference_logprobs")
"""Fields that hold one number for each token; the logprobs may be absent."""
UNTYPED = ("messages", "generation_params", "overrides", "group_overrides", "images")
"""Fields that hold any JSON."""
MOST_ROWS = 4_096
"""Rows of a group. Packing groups takes time and memory with their size."""
Name = Annotated[str, Field(max_length=1_024)]
Tokens = Annotated[int, Field(ge=1, lt=2**31)]
Steps = Annotated[int, Field(ge=-1, lt=2**53)]
"""-1 stands for none."""


class SentGroup(ScoredData):  # type: ignore[misc]
    """One scored group as it was sent; `group_id` names it once and for all."""

    model_config = ConfigDict(allow_inf_nan=False)

    group_id: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    env_id: Annotated[int, Field(ge=0, lt=2**31)] | None = None

    @field_validator("messages", mode="before")
    @classmethod
    def validate_messages(cls, messages: object) -> object:
        """Check messages. It replaces atroposlib's validator of this name, which fails on other types."""
        rows = messages if isinstance(messages, list) else [messages]
        said = [message for row in rows if isinstance(row, list) for message in row]
        if messages is not None and not all(isinstance(row, list) for row in rows):
            raise ValueError("messages is not a list of lists")
        if not all(isinstance(each, dict) and "role" in each and "content" in each for each in said):
            raise ValueError("Message must have 'role' and 'content' fields")
        return messages

    @property
    def rows(self) -> int:
        return len(self.tokens)

    @model_validator(mode="after")
    def _has_one_shape(self) -> "SentGroup":
        if not self.tokens:
            raise ValueError("tokens has no rows")
        for name in ("masks", "scores", "advantages", "ref_logprobs", "inference_logprobs"):
            found = getattr(self, name)
            if found is not None and len(found) != self.rows:
                raise ValueError(f"{name} has {len(found)} rows, tokens has {self.rows}")
        for name in PER_TOKEN:
            for row, (numbers, tokens) in enumerate(
                zip(getattr(self, name) or (), self.tokens, strict=False)
            ):
                if len(numbers) != len(tokens):
                    raise ValueError(f"{name}[{row}] has {len(numbers)} numbers for {len(tokens)} tokens")
        return self

    @model_validator(mode="after")
    def _fits_tensors(self) -> "SentGroup":
        distilled = [ids for row in self.distill_token_ids or () for ids in row]
        for name, rows in (("tokens", self.tokens), ("masks", self.masks), ("distill_token_ids", distilled)):
            # trainers make int64 tensors of these: one larger number fails the whole batch
            if any(row and not (min(row) >= -(2**63) and max(row) < 2**63) for row in rows):
                raise ValueError(f"{name} holds a number of more than 64 bits")
        return self

    @model_validator(mode="after")
    def _is_finite(self) -> "SentGroup":
        # a batch with one such number can't be written as JSON: nobody would ever fetch it
        for name in UNTYPED:
            try:
                json.dumps(getattr(self, name), allow_nan=False)
            except ValueError:
                raise ValueError(f"{name} holds a number that is not finite") from None
        return self


class _Bounded(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)


class Trainer(_Bounded, server.Registration):  # type: ignore[misc]
    wandb_group: Name
    wandb_project: Name
    batch_size: Annotated[int, Field(ge=1, le=65_536)]
    max_token_len: Tokens
    checkpoint_dir: Name
    save_checkpoint_interval: Steps
    starting_step: Annotated[int, Field(ge=0, lt=2**53)]
    num_steps: Steps


class Environment(_Bounded, server.RegisterEnv):  # type: ignore[misc]
    max_token_length: Tokens
    desired_name: Name
    weight: Annotated[float, Field(ge=1e-9, le=1e9)]
    group_size: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    min_batch_allocation: Annotated[float, Field(ge=0, le=1)] | None = None


class EnvironmentNumber(_Bounded, server.EnvIdentifier):  # type: ignore[misc]
    env_id: Annotated[int, Field(ge=0, lt=2**31)]


GROUP, GROUPS = TypeAdapter(SentGroup), TypeAdapter(list[SentGroup])
TRAINER, ENVIRONMENT = TypeAdapter(Trainer), TypeAdapter(Environment)
ENVIRONMENT_NUMBER = TypeAdapter(EnvironmentNumber)
Sent = TypeVar("Sent")


def read(kind: TypeAdapter[Sent], body: bytes) -> Sent:
    """What a body holds. Raises Refused, in the form of atroposlib's answers."""
    try:
        return kind.validate_json(body)
    except ValidationError as error:
        # the input may be the whole body, and the context holds exceptions, which JSON can't show
        complaints = error.errors(include_url=False, include_input=False, include_context=False)
        if complaints[0]["type"] == "json_invalid":
            raise Refused(400, f"the body is not JSON: {complaints[0]['msg']}") from error
        detail = [{**each, "loc": ("body", *each["loc"])} for each in complaints[:MOST_COMPLAINTS]]
        raise Refused(422, detail) from error
