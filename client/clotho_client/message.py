"""The bases of what goes over the wire."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A frozen value; unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Answer(BaseModel):
    """A frozen answer of the server. Fields of newer servers are ignored, so that older clients read them."""

    model_config = ConfigDict(frozen=True, extra="ignore")
