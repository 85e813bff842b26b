"""The configuration of environments of the in-memory design: their fields, on top of the adapter's."""

from typing import Any, Literal

from atroposlib.envs.base import BaseEnvConfig
from pydantic import Field, JsonValue, field_validator

from clotho.atropos.config import ClothoEnvConfig


class HermesAgentEnvConfig(ClothoEnvConfig):
    """Names and defaults are those of the in-memory design."""

    enabled_toolsets: list[str] | str | None = Field(default=None, description="None: all available ones.")
    disabled_toolsets: list[str] | str | None = Field(default=None, description="Toolsets to leave out.")
    distribution: str | None = Field(default=None, description="Sample each group's toolsets from this.")
    max_agent_turns: int = Field(default=30, description="Model calls of one rollout.")
    system_prompt: str | None = Field(default=None, description="Put before every prompt.")
    agent_temperature: float = Field(default=1.0, description="Of every turn.")
    terminal_backend: Literal["local"] = Field(default="local", description="Where commands run.")
    terminal_timeout: float = Field(default=120, description="Seconds that a command may take.")
    terminal_lifetime: float = Field(
        default=3600, description="Taken, without effect: a sandbox is kept for as long as its rollout."
    )
    tool_pool_size: int = Field(default=128, gt=0, description="Prompts and rewards at the same time.")
    tool_call_parser: str | None = Field(default="hermes", description="None: by the model's family.")
    dataset_name: str | None = Field(default=None, description="For the environment's own use.")
    dataset_split: str = Field(default="train", description="For the environment's own use.")
    prompt_field: str = Field(default="prompt", description="For the environment's own use.")
    extra_body: dict[str, Any] | None = Field(default=None, description="Further fields of model requests.")

    @field_validator("enabled_toolsets", "disabled_toolsets")
    @classmethod
    def _split(cls, value: list[str] | str | None) -> list[str] | None:
        return value.split(",") if isinstance(value, str) else value


def own_fields(config: HermesAgentEnvConfig) -> dict[str, JsonValue]:
    """What an author's configuration adds, and the fields that say what the dataset is."""
    dataset = {"dataset_name", "dataset_split", "prompt_field"}
    inherited = (HermesAgentEnvConfig.model_fields.keys() | BaseEnvConfig.model_fields.keys()) - dataset
    fields: dict[str, JsonValue] = config.model_dump(mode="json", exclude=set(inherited))
    return fields
