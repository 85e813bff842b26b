"""A run: its manifest, which may not change, how its groups are started, and what of it is paused."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, JsonValue, ValidationError

from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel, field_errors
from clotho.models.rendering.rendering import Rendering
from clotho.models.sampling import Sampling
from clotho.plugin_settings import with_run_settings
from clotho.rollouts.agent import Agent
from clotho.rollouts.budget import Account
from clotho.rollouts.group import GroupRequest, RepairBounds
from clotho.rollouts.outcome import Limits
from clotho.rollouts.task_queues import TaskQueues
from clotho.run_settings import Acquire, CheckpointPolicy, OnRewardError, RunSettings
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.config import chosen_backend
from clotho.tools.distributions import Distribution
from clotho.tools.tool import ToolSettings


class ToolSelection(FrozenModel):
    """The toolsets that a run offers: all available, the enabled ones, or a sample of a distribution."""

    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] = ()
    distribution: Distribution | None = None
    tools: tuple[str, ...] | None = None
    """The names of the only tools to offer of those; None: all of them."""

    def enables(self, toolset: str) -> bool:
        """Whether a toolset is enabled; a distribution leaves that to each group's sample."""
        return (self.enabled is None or toolset in self.enabled) and toolset not in self.disabled


OWN_SETTINGS = (
    "checkpoints",
    "checkpoint_mb",
    "terminal_lifetime",
    "acquire",
    "on_reward_error",
    "verification_seconds",
)
VERIFICATION_SECONDS = 1_800.0


SETTINGS = {
    "selection": ("distribution",),
    "limits": ("keep_diverged", "parallel_tools", "rollout_budget"),
    "account": ("budget", "prices"),
    "sandbox": (
        "backend",
        "memory_mb",
        "disk_mb",
        "max_processes",
        "limits",
        "expose_usr_local",
        "mounts",
        "unsafe_local",
    ),
    "tool_settings": (
        "max_result_chars",
        "max_turn_chars",
        "preview_chars",
        "result_chars",
        "plugins",
        "delegation",
        "redact",
    ),
}
"""Places of the fields of RunSettings in a manifest: its own, and those of its parts.

`sandbox` and `image` are the sandbox's `backend`.
"""


class RunManifest(FrozenModel):
    """The settings of a run that may not change between restarts."""

    run: str
    environment: str
    environment_config: dict[str, JsonValue]
    agent: Agent = Agent()
    model: str
    """The model's name, as its server knows it; the agent's kind where no model acts."""
    sampling: Sampling
    rendering: Rendering | None = None
    """Set in token mode: Clotho renders. In chat mode it is None: the server renders.

    A run is in token mode if its endpoint's `inference`, as `clotho run --inference`, isn't `chat`. An endpoint
    that says otherwise than this field is refused (`Backends.at` in clotho/models/backends.py).
    """
    seed: int
    system_prompt: str | None
    """System message before every prompt: `_prompt` in activities/groups.py puts it there; for a delegated task,
    `_messages` in activities/delegation.py."""
    selection: ToolSelection
    tool_settings: ToolSettings
    sandbox: SandboxSpec
    checkpoints: CheckpointPolicy = CheckpointPolicy.EVERY_TURN
    checkpoint_mb: int = 256
    """Workspaces larger than this, before compression, aren't checkpointed."""
    terminal_lifetime: int = 3_600
    """Seconds after its last call when the sandbox of an open rollout is checkpointed and destroyed."""
    acquire: Acquire = Acquire.ON_FIRST_CALL
    on_reward_error: OnRewardError = OnRewardError.FAIL
    verification_seconds: Annotated[float, Field(exclude_if=VERIFICATION_SECONDS.__eq__)] = (
        VERIFICATION_SECONDS  # manifests without it stay as they are
    )
    """Seconds that a verifier and its commands may take, unless the task asks for more."""
    limits: Limits
    group_size: int
    send_seeds: bool = True
    """Whether requests to the model server carry seeds; some providers refuse them."""
    account: Account = Account()
    """As the run was begun with: no part of the fingerprint, since it may change (`clotho/runs/budgets.py`)."""

    def named(self, model: str) -> "RunManifest":
        """The manifest with the model's name, and the rendering that follows from it."""
        rendering = self.rendering.named(model) if self.rendering is not None else None
        return self.model_copy(update={"model": model, "rendering": rendering})

    def with_settings(self, *settings: RunSettings) -> "RunManifest":
        """The manifest with the user's settings; later ones override earlier ones."""
        asked = {
            name: value
            for each in settings
            for name in RunSettings.model_fields
            if (value := getattr(each, name)) is not None
        }
        if self.agent.kind.runs_solution:
            asked.pop("distribution", None)  # its command needs the terminal
        sections = self.tool_settings.plugins
        for each in settings:
            sections = with_run_settings(sections, each.sections)
        asked["plugins"] = sections  # merged by field, where every other setting replaces the one before
        sandbox, image = asked.pop("sandbox", None), asked.pop("image", None)
        if sandbox is not None or image is not None:
            asked["backend"] = chosen_backend(sandbox, image, self.sandbox.backend)
        parts: dict[str, FrozenModel] = {
            part: _changed(getattr(self, part), _of(names, asked)) for part, names in SETTINGS.items()
        }
        if "distribution" in asked:
            parts["selection"] = parts["selection"].model_copy(update={"enabled": None})
        return self.model_copy(update={**_of(OWN_SETTINGS, asked), **parts})

    @property
    def settings(self) -> dict[str, JsonValue]:
        """The values of the fields of RunSettings."""
        whole = self.model_dump(mode="json")
        values = {name: whole[part].get(name) for part, names in SETTINGS.items() for name in names}
        del values["backend"]
        whole["verification_seconds"] = self.verification_seconds
        return {**_of(OWN_SETTINGS, whole), **values, "sandbox": str(self.sandbox.backend)}

    @property
    def changed_settings(self) -> dict[str, JsonValue]:
        """The fields of `settings` that differ from their defaults."""
        parts = {part: type(getattr(self, part))() for part in SETTINGS}
        own = {name: type(self).model_fields[name].default for name in OWN_SETTINGS}
        usual = self.model_copy(update={**parts, **own}).settings
        return {name: value for name, value in self.settings.items() if value != usual[name]}

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.model_dump_json(exclude={"account"}).encode()).hexdigest()[:16]


def _changed(part: FrozenModel, asked: Mapping[str, Any]) -> FrozenModel:
    try:
        return type(part).model_validate({**dict(part), **asked})
    except ValidationError as error:
        raise InvalidInput(field_errors(error)) from error


def _of(names: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


PAUSED_BY_HAND = "by hand"
"""The reason of a pause that an operator asked for."""


class PauseEntry(FrozenModel):
    """A change of what is paused in a run, since the entries before it; or all of it."""

    paused: dict[str, str] = {}
    """Run, group or rollout -> reason: those whose pause begins, or all whose pause lasts."""
    resumed: tuple[str, ...] = ()
    """Runs, groups and rollouts whose pause ends."""
    changes: int | None = None
    """The number of the last entry that has all of it, which this one and those between change; None: this has."""
    at: float
    """Seconds since the epoch."""


class AdapterRunConfig(FrozenModel):
    """The settings by which the adapter rolls out a run's groups: the last entry counts."""

    task_queues: TaskQueues = TaskQueues()
    repairs: RepairBounds = RepairBounds()

    def group(self, manifest: RunManifest, group: str, item: int) -> GroupRequest:
        """The request for the group that rolls out item number `item`."""
        return GroupRequest(
            run=manifest.run,
            group=group,
            environment=manifest.environment,
            item=item,
            size=manifest.group_size,
            limits=manifest.limits,
            task_queues=self.task_queues,
            repairs=self.repairs,
        )
