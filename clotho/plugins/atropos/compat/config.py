"""The configuration of environments of the in-memory design: their fields, on top of the adapter's."""

import json
from typing import Any, Literal

from atroposlib.envs.base import BaseEnvConfig
from pydantic import Field, JsonValue, field_validator, model_validator

from clotho.plugins.atropos.compat.tool_budget import BudgetConfig
from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.plugins.containers.config import DockerConfig
from clotho.sandbox.registry import AnyConfig, LocalConfig

DEFAULT_BUDGET = BudgetConfig()


class HermesAgentEnvConfig(ClothoEnvConfig):
    """Names and defaults are those of the in-memory design."""

    enabled_toolsets: list[str] | str | None = Field(
        default=None, description="Toolsets to offer; None: all available ones."
    )
    disabled_toolsets: list[str] | str | None = Field(default=None, description="Toolsets to leave out.")
    max_agent_turns: int = Field(default=30, description="Model calls of one rollout.")
    system_prompt: str | None = Field(default=None, description="Put before every prompt.")
    agent_temperature: float = Field(default=1.0, description="Sampling temperature of every turn.")
    terminal_backend: Literal["local", "docker", "modal", "daytona", "ssh", "singularity"] = Field(
        default="local", description="Where commands should run. What isn't configured here runs locally."
    )
    writable_roots: list[str] | str = Field(
        default=["/tests", "/logs"], description="Folders that commands may write to beside the usual ones."
    )
    path_aliases: dict[str, str] | str = Field(
        default={"/workspace": "/work", "/app": "/work"},
        description="Further paths of folders that commands may write to, as JSON.",
    )
    terminal_timeout: float = Field(default=120, description="Seconds that a command may take.")
    terminal_lifetime: int | None = Field(
        default=3600,
        gt=0,
        description="Seconds after its last call when an idle sandbox is given back; the next call restores it.",
    )
    tool_pool_size: int = Field(default=128, gt=0, description="Prompts and rewards at the same time.")
    tool_call_parser: str | None = Field(
        default="hermes",
        description="Parser of tool calls, by vLLM's name or as module:Class; None: by the model's family.",
    )
    dataset_name: str | None = Field(default=None, description="For the environment's own use.")
    dataset_split: str = Field(default="train", description="For the environment's own use.")
    prompt_field: str = Field(default="prompt", description="For the environment's own use.")
    verifier_cwd: str | None = Field(
        default=None, description="Where rewards' commands start; else where the agent was."
    )
    trust_workspace: bool = Field(default=True, description="Rewards' tools load the workspace's settings.")
    keep_services: bool = Field(default=False, description="Background processes live on for the reward.")
    extra_body: dict[str, Any] | None = Field(default=None, description="Further fields of model requests.")
    default_result_size_chars: int = Field(
        default=DEFAULT_BUDGET.default_result_size,
        description="Characters of one tool result, beyond which it goes to a file in the sandbox.",
    )
    turn_budget_chars: int = Field(
        default=DEFAULT_BUDGET.turn_budget, description="Characters of all tool results of one turn."
    )
    preview_size_chars: int = Field(
        default=DEFAULT_BUDGET.preview_size, description="Characters shown of a result that went to a file."
    )
    tool_result_overrides: dict[str, int] | None = Field(
        default=None, description="Characters of one result, by tool; read_file's are never cut."
    )

    @field_validator("enabled_toolsets", "disabled_toolsets", "writable_roots")
    @classmethod
    def _split(cls, value: list[str] | str | None) -> list[str] | None:
        return value.split(",") if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_choice(self) -> "HermesAgentEnvConfig":
        if self.enabled_toolsets is not None and self.distribution is not None:
            raise ValueError("enabled_toolsets and distribution exclude each other: give one of them")
        return self

    @field_validator("tool_result_overrides", "path_aliases", mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    def build_budget_config(self) -> BudgetConfig:
        """The result budget that these fields ask for."""
        return BudgetConfig(
            default_result_size=self.default_result_size_chars,
            turn_budget=self.turn_budget_chars,
            preview_size=self.preview_size_chars,
            tool_overrides=self.tool_result_overrides or {},
        )

    @property
    def sandbox_backend(self) -> AnyConfig:
        """The backend that stands for `terminal_backend`: containers where there is an image for them."""
        if self.terminal_backend == "docker" and self.image is not None:
            return DockerConfig(image=self.image)
        return LocalConfig()


def own_fields(config: HermesAgentEnvConfig) -> dict[str, JsonValue]:
    """The fields that an author's configuration adds, and those of the dataset."""
    dataset = {"dataset_name", "dataset_split", "prompt_field"}
    inherited = (HermesAgentEnvConfig.model_fields.keys() | BaseEnvConfig.model_fields.keys()) - dataset
    fields: dict[str, JsonValue] = config.model_dump(mode="json", exclude=set(inherited))
    return fields
