"""What the journal holds of a run: what it is made of, where its model is, and whether it is paused."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from clotho.identifiers import derived_seed
from clotho.inference.base import Inference, Sampling
from clotho.inference.tool_call_parsers import family_parser, model_name
from clotho.records.base import Record
from clotho.records.outcome import Limits
from clotho.records.run_settings import CheckpointPolicy, OnRewardError, RunSettings
from clotho.sandbox.base import SandboxSpec
from clotho.toolsets.base import ToolSettings


class ToolSelection(Record):
    """Which toolsets a run offers: all available, the enabled ones, or a sample of a distribution."""

    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] = ()
    distribution: str | None = None
    tools: tuple[str, ...] | None = None
    """The names of the only tools to offer of those; None: all of them."""


class Rendering(Record):
    """How conversations become tokens and tokens messages, as `clotho.rendering.resolve` takes it."""

    tokenizer: str = ""
    """A name on the Hugging Face hub, a folder where models are called from, or clotho-tiny. Empty: the model's."""
    renderer: str | None = None
    tool_call_parser: str | None = None
    """None: what `clotho.rendering.resolve` finds for the model's architecture; see the run's served model."""
    thinking_mode: bool = False

    def named(self, model: str) -> "Rendering":
        """With a tokenizer, by default that of `model`, and the tool-call parser that its name stands for."""
        tokenizer = self.tokenizer or model
        reads = self.tool_call_parser or family_parser(model_name(tokenizer))
        return self.model_copy(update={"tokenizer": tokenizer, "tool_call_parser": reads})


OWN_SETTINGS = ("checkpoints", "checkpoint_mb", "on_reward_error")
SETTINGS = {
    "limits": ("keep_diverged",),
    "sandbox": ("memory_mb", "disk_mb", "max_processes", "limits", "expose_usr_local", "unsafe_local"),
    "tool_settings": ("max_result_chars", "max_turn_chars", "preview_chars", "result_chars", "redact"),
}
"""Where in a manifest the fields of RunSettings are: its own ones, and those of its parts."""


class RunManifest(Record):
    """What may not change between restarts of a run."""

    run: str
    environment: str
    environment_config: dict[str, JsonValue]
    model: str
    sampling: Sampling
    rendering: Rendering | None = None
    """None: chat mode, in which the server renders, and nobody knows the tokens."""
    seed: int
    system_prompt: str | None
    selection: ToolSelection
    tool_settings: ToolSettings
    sandbox: SandboxSpec
    checkpoints: CheckpointPolicy = CheckpointPolicy.EVERY_TURN
    checkpoint_mb: int = 256
    """Workspaces larger than this, before compression, aren't checkpointed."""
    on_reward_error: OnRewardError = OnRewardError.FAIL
    limits: Limits
    group_size: int

    def named(self, model: str) -> "RunManifest":
        """With the model's name, and all of its rendering that the name decides."""
        rendering = self.rendering.named(model) if self.rendering is not None else None
        return self.model_copy(update={"model": model, "rendering": rendering})

    def with_settings(self, *settings: RunSettings) -> "RunManifest":
        """With what its user asks for, the last word counting."""
        asked = {
            name: value
            for each in settings
            for name in RunSettings.model_fields
            if (value := getattr(each, name)) is not None
        }
        parts: dict[str, Record] = {
            part: getattr(self, part).model_copy(update=_of(names, asked)) for part, names in SETTINGS.items()
        }
        return self.model_copy(update={**_of(OWN_SETTINGS, asked), **parts})

    @property
    def settings(self) -> dict[str, JsonValue]:
        """What its user may ask for, as it is."""
        whole = self.model_dump(mode="json")
        return {
            **_of(OWN_SETTINGS, whole),
            **{name: whole[part][name] for part, names in SETTINGS.items() for name in names},
        }

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


def _of(names: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


class Endpoint(Record):
    """Where a run's model is served: may change between restarts, the last entry counts."""

    base_url: str
    more_urls: tuple[str, ...] = ()
    """Of further servers of the same model."""
    api_key_variable: str | None = None
    """The environment variable that holds the key, in the processes that call models."""
    inference: Inference = Inference.CHAT

    @property
    def servers(self) -> tuple["Endpoint", ...]:
        """Each server as an endpoint of its own."""
        urls = (self.base_url, *self.more_urls)
        return tuple(self.model_copy(update={"base_url": url, "more_urls": ()}) for url in urls)

    def server_for(self, rollout: str, attempt: int) -> "Endpoint":
        """The rollout's own, which has its prompts cached; the next one at every attempt after the first."""
        servers = self.servers
        return servers[(derived_seed(rollout) + attempt - 1) % len(servers)]


class PauseEntry(Record):
    """A run was paused, or went on: the last entry counts."""

    paused: bool
    reason: str = ""
