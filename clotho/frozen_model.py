"""The base of messages and journal entries."""

import operator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError

Seconds = Annotated[float, PlainSerializer(lambda seconds: round(seconds, 6))]
"""Written to the microsecond: every step carries the digits in its history."""

WHERE_SET = Field(exclude_if=operator.not_)
"""Of a field that is None, False, 0 or empty in most values, and isn't written then: histories stay small."""
WHERE_FALSE = Field(exclude_if=bool)
"""Of a flag that is True in most values, and isn't written then."""


class FrozenModel(BaseModel):
    """A frozen value; unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def field_errors(error: ValidationError, whole: str = "") -> str:
    """The invalid fields, and why, in one line; `whole` is the name for errors of no single field."""
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or whole}: {each['msg']}" for each in error.errors())
