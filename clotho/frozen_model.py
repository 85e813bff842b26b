"""The base of messages and journal entries."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

Seconds = Annotated[float, PlainSerializer(lambda seconds: round(seconds, 6))]
"""Written to the microsecond: every step carries the digits in its history."""


class FrozenModel(BaseModel):
    """A frozen value; unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
