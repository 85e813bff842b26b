"""Requests and answers of the rollout API."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint
from clotho.models.rendering.rendering import Rendering
from clotho.plugin_settings import run_settings_here
from clotho.rollouts.agent import AgentKind, trained_agent
from clotho.rollouts.item import Item
from clotho.rollouts.run import RunManifest
from clotho.run_settings import RunSettings
from clotho.runs.disturbances import Disturbance
from clotho.runs.request import run_manifest
from clotho.training.rows import TrainingRow


class RunOrder(FrozenModel):
    """A run whose groups will be ordered. All but `endpoint` may not change once it has groups."""

    environment: str
    """A module in environments/, or module:Class, as workers import it."""
    environment_config: dict[str, JsonValue] = {}
    """Fields of the environment's configuration."""
    agent: str = AgentKind.MODEL.value
    """The agent: model, or a program with a loop of its own."""
    model: str
    """The model's name, as its server knows it."""
    endpoint: Endpoint
    """The model's servers; the last one given counts."""
    rendering: Rendering = Rendering()
    """The tokenizer, renderer and parser of tool calls."""
    temperature: float | None = None
    """Sampling temperature; none: the environment's."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens that one turn may sample; none: the environment's."""
    group_size: Annotated[int, Field(ge=1)]
    """Rollouts of each group."""
    seed: int = 0
    """Seeds of all rollouts derive from it."""
    settings: RunSettings = RunSettings()
    """Sandbox, limits and rewards, as `clotho run` takes them, but for what would run on a host."""

    @field_validator("settings", mode="before")
    @classmethod
    def _no_file(cls, settings: object) -> object:
        prices = settings.get("prices") if isinstance(settings, Mapping) else None
        if isinstance(prices, str) and not prices.startswith("{"):
            raise ValueError("prices: give them as an object: no file of the server is read")
        return settings

    def manifest(self, run: str, defaults: RunSettings) -> RunManifest:
        """The run's manifest. Raises InvalidInput for unknown names and values that don't fit.

        Callers can't choose what runs on a host with a worker's rights: the environment and `defaults` can.
        """
        manifest = self._manifest(run, self.environment_config).with_settings(defaults, self.settings)
        if not _on_hosts(manifest) <= _on_hosts(self._manifest(run, {}).with_settings(defaults)):
            raise InvalidInput(
                "MCP servers with `where: host`, unsafe_local and mounts can't be ordered, since they have a "
                "worker's rights or a host's files: set them in the clotho.yaml of the rollout API, or begin the "
                "run with `clotho run`"
            )
        return manifest

    def _manifest(self, run: str, overrides: dict[str, JsonValue]) -> RunManifest:
        return run_manifest(
            self.environment,
            run,
            self.model,
            agent=trained_agent(self.agent),
            overrides=overrides,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            rendering=None if self.endpoint.inference is Inference.CHAT else self.rendering,
            seed=self.seed,
            group_size=self.group_size,
        )


def _on_hosts(manifest: RunManifest) -> set[str]:
    """What of a run runs on hosts, outside of sandboxes, and the hosts' folders that sandboxes see."""
    of_plugins = (each.on_hosts for each in run_settings_here(manifest.tool_settings.plugins))
    unsafe = {"unsafe_local"} if manifest.sandbox.unsafe_local else set()
    return unsafe.union(*of_plugins, (f"mount of {each}" for each in manifest.sandbox.mounts.values()))


class GroupOrder(FrozenModel):
    """An item to roll out as one group."""

    item: Item
    """The item, as the environment takes it."""
    step: Annotated[int, Field(ge=0)] | None = None
    """The trainer's step, by which weights go whose server names no version."""


class ClaimOrder(GroupOrder):
    """The next group of a sequence, for a caller that has no names of its own."""

    key: Annotated[str, Field(min_length=1)]
    """The sequence: whatever tells its groups from others of the same run."""
    life: str
    """The caller's life: within one, each claim has a group of its own; the next life gets them again, in order."""


class OrderState(StrEnum):
    OPEN = "open"
    FINISHED = "finished"
    REFUSED = "refused"


class GroupAnswer(FrozenModel):
    """The state of an ordered group."""

    name: str
    """The name that it was ordered by."""
    group: str
    """The group's id."""
    state: OrderState
    """`open` until it is scored; `refused` where there is nothing to train on, and never will be."""
    acknowledged: bool = False
    """Whether its rows were acknowledged."""
    reason: str | None = None
    """Why it is refused, in one word; or why it is still open, if it met a failure."""
    detail: str = ""
    """The same in full."""
    rows: tuple[TrainingRow, ...] | None = None
    """The rows of a finished group, those of a rollout side by side."""


class Fetch(FrozenModel):
    """How the rows of a group are asked for."""

    wait: Annotated[float, Field(ge=0, le=300)] = 0.0
    """Seconds to wait for the group."""
    step: int | None = None
    """The trainer's step, for `max_lag`."""
    max_lag: Annotated[int, Field(ge=0)] | None = None
    """Steps that the oldest token's weights may be behind; needs `step`."""
    exclude: tuple[Disturbance, ...] = ()
    """Rollouts whose tokens are left out, by what happened to them. Their rewards stay."""

    @model_validator(mode="after")
    def _bound_has_a_step(self) -> Self:
        if self.max_lag is not None and self.step is None:
            raise ValueError("max_lag needs step")
        return self


class OrderedGroups(FrozenModel):
    """The names of a run's groups that are neither acknowledged nor refused, in the order of ordering."""

    names: tuple[str, ...]


class Failure(FrozenModel):
    """A request that wasn't served."""

    error: str
    """What to change, or what is away."""
