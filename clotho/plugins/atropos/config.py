"""The adapter's configuration: Atropos' own fields and Clotho's. Unknown ones are errors."""

import json
import re
from typing import Any, Literal, cast

from atroposlib.envs.base import BaseEnvConfig
from pydantic import ConfigDict, Field, field_validator, model_validator

from clotho.environment.named import named_environment
from clotho.identifiers.ids import checked_run_name
from clotho.rollouts.agent import AgentKind
from clotho.run_settings import RunSettings
from clotho.runs.disturbances import Disturbance, disturbances_from
from clotho.training.siblings import Exclusion

WithRunSettings: Any = type("WithRunSettings", (BaseEnvConfig, RunSettings), {"__module__": __name__})
"""The base class, without a class statement: type checkers would refuse fields of a base that they half know."""


class ClothoEnvConfig(WithRunSettings):  # type: ignore[misc]
    """One environment, rolled out as one run of a store."""

    model_config = ConfigDict(extra="forbid", frozen=False)

    environment: str = Field(
        default="",
        description="A module in environments/, module:Class, or tasks:SOURCE. Empty for a class of its own.",
    )
    environment_config: dict[str, Any] | str = Field(
        default_factory=dict, description="Fields of the environment's configuration, as JSON."
    )
    agent: str = Field(
        default=AgentKind.MODEL.value,
        description="The agent: model, or a program with a loop of its own (`clotho agents`).",
    )
    run: str = Field(
        default="", description="The run's name; giving it again resumes it. Empty: the environment's name."
    )
    store: str | None = Field(default=None, description="Where the journal is: folder or s3://bucket/prefix.")
    temporal: str | None = Field(default=None, description="Temporal's address, host:port.")
    api_key_variable: str | None = Field(
        default=None, description="Environment variable that holds the model server's key, in the workers."
    )
    rollout_server_token_variable: str | None = Field(
        default=None,
        description="Environment variable that holds the token of the trainer's API, in the adapter.",
    )
    inference: Literal["tokens", "chat", "vllm-generate", "vllm-completions", "sglang"] = Field(
        default="tokens",
        description="How turns are sampled: with their tokens, by what the server offers; or as chat.",
    )
    renderer: str | None = Field(
        default=None, description="Renderer of the model's chat format; None: by the tokenizer."
    )
    tool_call_parser: str | None = Field(
        default=None,
        description="Parser of tool calls, by vLLM's name or as module:Class; None: by the model's family.",
    )
    accept_chat_data: bool = Field(
        default=False, description="Serve groups without tokens too, which nothing can be trained on."
    )
    temperature: float | None = Field(
        default=None, description="Sampling temperature; None: the environment's."
    )
    seed: int = Field(default=0, description="Seeds of all rollouts derive from it.")
    max_open_groups: int = Field(
        default=64, gt=0, description="Groups that are open or undelivered at the same time."
    )
    group_attempts: int = Field(
        default=3, gt=0, description="Attempts at a group that fails, before it is dropped."
    )
    max_weight_lag: int | None = Field(
        default=None,
        ge=0,
        description="Trainer steps that weights may be old when a group is sampled and when it is delivered.",
    )
    exclude_rollouts: list[str] | str = Field(
        default_factory=list,
        description="Rollouts that aren't trained on, by what happened to them, such as diverged,replaced.",
    )
    exclude_whole_groups: bool = Field(
        default=False, description="Drop the groups of such rollouts, in place of masking their rows."
    )
    evaluation_config: dict[str, Any] | str = Field(
        default_factory=dict,
        description="Overrides of environment_config that make the held-out set, beside `held_out`, as JSON.",
    )
    evaluation_groups: int = Field(default=16, gt=0, description="Items of the held-out set.")
    evaluation_group_size: int = Field(default=4, gt=0, description="Rollouts of each of them.")
    success_score: float = Field(default=1.0, description="The least score that counts as a pass.")
    # a worker that waits for a durable workflow is not stuck: dropping it would only lose sight of the group
    worker_timeout: float = Field(
        default=-1, description="Seconds after which Atropos drops a worker; -1: never."
    )

    @field_validator("environment_config", "evaluation_config")
    @classmethod
    def _from_flag(cls, value: dict[str, Any] | str) -> dict[str, Any]:
        # Atropos' command line has no dicts: it gives the text
        found = json.loads(value) if isinstance(value, str) else value
        if not isinstance(found, dict):
            raise ValueError("give a JSON object")
        return found

    @field_validator("exclude_rollouts")
    @classmethod
    def _known_disturbances(cls, value: list[str] | str) -> list[str]:
        names = value if isinstance(value, str) else ",".join(value)
        return [str(kind) for kind in disturbances_from(names)]

    @property
    def exclusion(self) -> Exclusion:
        return Exclusion(frozenset(map(Disturbance, self.exclude_rollouts)), self.exclude_whole_groups)

    @property
    def training_set(self) -> dict[str, Any]:
        """The environment's configuration."""
        return cast(dict[str, Any], self.environment_config)

    @property
    def held_out_set(self) -> dict[str, Any]:
        """Changes to the environment's configuration that make the held-out set."""
        return cast(dict[str, Any], self.evaluation_config)

    @model_validator(mode="after")
    def _named(self) -> "ClothoEnvConfig":
        self.environment, folder = named_environment(self.environment)
        self.environment_config = {**folder, **self.training_set}
        module = self.environment.rpartition(".")[2].partition(":")[0]
        if self.run or module:
            self.run = checked_run_name(self.run or run_name_of(module))
        return self


def run_name_of(name: str) -> str:
    """The run's default name, from that of an environment's module or class."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64]
