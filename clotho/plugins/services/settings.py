"""Settings of the models that tools call."""

from typing import Annotated

from pydantic import Field, JsonValue

from clotho.frozen_model import FrozenModel


class ModelService(FrozenModel):
    """A model behind an OpenAI-compatible API."""

    url: Annotated[str, Field(pattern=r"^https?://[^@\s]+$")]
    """The base URL, such as https://api.openai.com/v1; without a user name or password."""
    model: Annotated[str, Field(min_length=1)]
    key: str | None = None
    """The environment variable of the workers that holds the key; None: it needs none."""
    seconds: Annotated[float, Field(gt=0)] = 300.0
    """Seconds after which a request is given up, and tried again."""
    extra_body: dict[str, JsonValue] = {}
    """Further fields of every request, such as max_tokens or size."""


class ModelServices(FrozenModel):
    """The models that tools call, each by what it is for; a tool without its model isn't offered."""

    vision: ModelService | None = None
    """Answers `vision_analyze`, by chat completions with images."""
    image: ModelService | None = None
    """Answers `image_generate`, by images/generations."""
    moa: tuple[ModelService, ...] = ()
    """Models that `mixture_of_agents` asks; the first also makes one answer of theirs."""
    clarify: ModelService | None = None
    """Answers `clarify` in place of its text."""
    judge: ModelService | None = None
    """Answers `ctx.ask_judge` of rewards."""
    max_calls: Annotated[int, Field(ge=1)] = 50
    """Calls of these models by tools that one rollout may make."""
