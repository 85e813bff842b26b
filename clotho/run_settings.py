"""Settings of a run: flags of `clotho run`, clotho.yaml, and the adapter's configuration."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, field_validator

SIZES = TypeAdapter(dict[str, int])
CHANCES = TypeAdapter(dict[str, float])
FIELDS = TypeAdapter(dict[str, JsonValue])
TEXTS = TypeAdapter(dict[str, str])


def _object(text: str) -> dict[str, JsonValue]:
    """A JSON object, or NAME=VALUE,NAME=VALUE."""
    # what is neither goes to JSON, whose error says what is wrong with it
    if text.lstrip().startswith("{") or "=" not in text:
        return FIELDS.validate_json(text)
    found: dict[str, JsonValue] = {}
    for assignment in text.split(","):
        name, _, value = assignment.partition("=")
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value.strip()
    return found


class CheckpointPolicy(StrEnum):
    """After which calls a sandbox is checkpointed.

    All checkpoints of sandboxes are taken in one of four places:

    - after a call: `Tools._with_checkpoint_or_manifest` (activities/tools.py), as this policy says;
    - before an idle sandbox is given back: `IdleSandboxes._take_checkpoint` (activities/idle.py), unless it is OFF;
    - before verification: `Verifier.verify` (activities/reward.py), whatever the policy;
    - when a program that acted has ended: `Agents.run_program` (activities/agents.py), whatever the policy.

    The last two are one checkpoint of the agent's last state (`Sandboxes.checkpoint_as_left`).
    """

    EVERY_CALL = "every_call"
    """After every call that needs the sandbox, but for those that run side by side: they only read."""
    EVERY_TURN = "every_turn"
    """After the last such call of a turn. The earlier ones keep a manifest, by which their replays are compared."""
    OFF = "off"


class Acquire(StrEnum):
    """When a rollout's sandbox is made."""

    ON_FIRST_CALL = "on_first_call"
    """Made by the first call, or the verification, that needs one."""
    AT_START = "at_start"
    """While the first turn is sampled, if the run offers a tool that needs one."""


class OnRewardError(StrEnum):
    """The result of a rollout whose verifier keeps failing."""

    FAIL = "fail"
    """The rollout has no reward: an infrastructure failure."""
    ZERO = "zero"
    """The rollout has reward 0, and its record says that the verifier failed."""


class RunSettings(BaseModel):
    """Each field has the name that it has in the run's manifest; None leaves what it has by default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoints: CheckpointPolicy | None = Field(
        default=None, description="Calls after which sandboxes are checkpointed: every_turn, every_call, off."
    )
    checkpoint_mb: int | None = Field(
        default=None, gt=0, description="Largest workspace that is checkpointed, in MiB before compression."
    )
    terminal_lifetime: int | None = Field(
        default=None,
        gt=0,
        description="Seconds after its last call when an idle sandbox is given back; the next call restores it.",
    )
    acquire: Acquire | None = Field(
        default=None,
        description="Time to make sandboxes: on_first_call, or at_start, while the first turn is sampled.",
    )
    keep_diverged: bool | None = Field(
        default=None,
        description="Go on in a restored sandbox where a repeated command had another result.",
    )
    parallel_tools: bool | None = Field(
        default=None,
        description="Run neighbouring calls of a turn side by side where their tools only read.",
    )
    on_reward_error: OnRewardError | None = Field(
        default=None,
        description="Result of a rollout whose verifier fails: fail (no reward), or zero, flagged.",
    )
    verification_seconds: float | None = Field(
        default=None,
        gt=0,
        description="Seconds that a verifier and its commands may take; a longer limit of the task wins.",
    )
    sandbox: str | None = Field(
        default=None,
        pattern=r"^([a-z][a-z0-9_]*|[\w.]+:\w+|\{.*\})$",
        description="Backend of the sandboxes: local, docker, ssh or another plugin's, module:Class, or JSON.",
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        description="The image that sandboxes begin from, but local ones.",
    )
    unsafe_local: bool | None = Field(
        default=None, description="Run commands without isolation where it can't be proved."
    )
    memory_mb: int | None = Field(default=None, ge=16, description="Memory of a sandbox, in MiB.")
    disk_mb: int | None = Field(default=None, ge=16, description="Disk of a sandbox, in MiB.")
    max_processes: int | None = Field(default=None, ge=8, description="Processes of a sandbox.")
    limits: Literal["required", "best_effort"] | None = Field(
        default=None,
        description="required: fail where a host can't bound a sandbox's memory or disk; or best_effort.",
    )
    expose_usr_local: bool | None = Field(
        default=None, description="Let sandboxes see the host's /usr/local, read-only."
    )
    mounts: dict[str, str] | str | None = Field(
        default=None,
        description="Folders of the workers' hosts that sandboxes see, read-only: /opt/agents=/srv/agents "
        "(seen=folder), or JSON.",
    )
    distribution: dict[str, float] | str | None = Field(
        default=None,
        description="Distribution that each group's toolsets are sampled from: a name, or probabilities as JSON.",
    )
    max_result_chars: int | None = Field(
        default=None,
        gt=0,
        description="Characters of a tool result beyond which it goes into a file, and the model sees a preview.",
    )
    max_turn_chars: int | None = Field(
        default=None,
        gt=0,
        description="Characters of all tool results of a turn together, beyond which further ones go into files.",
    )
    preview_chars: int | None = Field(default=None, gt=0, description="Characters of such a preview.")
    result_chars: dict[str, int] | str | None = Field(
        default=None, description="max_result_chars of single tools, as JSON."
    )
    plugins: dict[str, JsonValue] | str | None = Field(
        default=None,
        description="Settings of plugins by the plugin's name, as JSON, such as those of mcp, web, browser, skills "
        "and services (the page on tools).",
    )
    delegation: dict[str, JsonValue] | str | None = Field(
        default=None,
        description="Bounds of delegated tasks, as JSON: depth, children, turns and more (the page on tools).",
    )
    budget: dict[str, JsonValue] | str | None = Field(
        default=None,
        description="Budget of the run, which pauses when it is met: cost=20,prompt_tokens=1000000 and more, or "
        "JSON (the page on budgets). It may be changed.",
    )
    rollout_budget: dict[str, JsonValue] | str | None = Field(
        default=None,
        description="Budget of a rollout, which is ended and verified when it is met: cost=0.5, or JSON (the page "
        "on budgets).",
    )
    prices: dict[str, JsonValue] | str | None = Field(
        default=None,
        description="Prices of models in US dollars per million tokens, as JSON or a YAML file: model, then "
        "prompt, cached_prompt and sampled. They may be changed.",
    )
    redact: tuple[str, ...] | str | None = Field(
        default=None,
        description="Environment variables of the workers whose values no tool result may show.",
    )

    # Atropos' command line knows fields by their types alone, and gives text: a union lets it through.

    @field_validator("distribution")
    @classmethod
    def _distribution(cls, value: dict[str, float] | str | None) -> dict[str, float] | str | None:
        return CHANCES.validate_json(value) if isinstance(value, str) and value.startswith("{") else value

    @field_validator("result_chars")
    @classmethod
    def _sizes(cls, value: dict[str, int] | str | None) -> dict[str, int] | None:
        return SIZES.validate_python(_object(value)) if isinstance(value, str) else value

    @field_validator("mounts")
    @classmethod
    def _folders(cls, value: dict[str, str] | str | None) -> dict[str, str] | None:
        return TEXTS.validate_python(_object(value)) if isinstance(value, str) else value

    @field_validator("budget", "delegation", "plugins", "rollout_budget")
    @classmethod
    def _objects(cls, value: dict[str, JsonValue] | str | None) -> dict[str, JsonValue] | None:
        return _object(value) if isinstance(value, str) else value

    @field_validator("prices")
    @classmethod
    def _prices(cls, value: dict[str, JsonValue] | str | None) -> dict[str, JsonValue] | None:
        if not isinstance(value, str) or value.startswith("{"):
            return FIELDS.validate_json(value) if isinstance(value, str) else value
        try:
            return FIELDS.validate_python(yaml.safe_load(Path(value).read_text()))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ValueError(f"{value} is no file of prices: {' '.join(str(error).split())}") from error

    @field_validator("redact")
    @classmethod
    def _names(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | None:
        if not isinstance(value, str):
            return value
        return tuple(name.strip() for name in value.split(",") if name.strip())

    @property
    def sections(self) -> dict[str, JsonValue]:
        """The settings of plugins; each field of them overrides that field alone."""
        assert not isinstance(self.plugins, str), "JSON is read where it is given"
        return self.plugins or {}
