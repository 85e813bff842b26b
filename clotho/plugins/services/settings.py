"""Settings of the models that tools call."""

from typing import Annotated, ClassVar

from pydantic import Field, JsonValue

from clotho.frozen_model import FrozenModel
from clotho.plugin_settings import RunPluginSettings
from clotho.tools.tool import ToolSettings


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


class ModelServices(RunPluginSettings):
    """The models that tools call, each by what it is for; a tool without its model isn't offered."""

    plugin: ClassVar[str] = "services"

    vision: ModelService | None = None
    """Answers `vision_analyze`, by chat completions with images."""
    image: ModelService | None = None
    """Answers `image_generate`, by images/generations."""
    moa: tuple[ModelService, ...] = ()
    """Models that `mixture_of_agents` asks; the first also makes one answer of theirs."""
    clarify: ModelService | None = None
    """Answers `clarify` in place of `clarify_text`."""
    clarify_text: Annotated[str, Field(min_length=1)] = "Use your judgement."
    """What `clarify` answers in place of a user, unless a model does."""
    judge: ModelService | None = None
    """Answers `ctx.ask_judge` of rewards."""
    max_calls: Annotated[int, Field(ge=1)] = 50
    """Calls of these models by tools that one rollout may make."""


def services_of(settings: ToolSettings) -> ModelServices:
    """The models of a run; a run that sets nothing has none."""
    return settings.of(ModelServices) or ModelServices()
