"""What every record is: a frozen value that knows all of its fields."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

Seconds = Annotated[float, PlainSerializer(lambda seconds: round(seconds, 6))]
"""Written to the microsecond: further digits say nothing, and every step would carry them in its history."""


class FrozenModel(BaseModel):
    """A frozen value; unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
