"""What the journal holds of a run: what it is made of, where its model is, and whether it is paused."""

import hashlib
from enum import StrEnum

from pydantic import JsonValue

from clotho.identifiers import derived_seed
from clotho.inference.base import Inference, Sampling
from clotho.records.base import Record
from clotho.records.outcome import Limits
from clotho.sandbox.base import SandboxSpec
from clotho.toolsets.base import ToolSettings


class CheckpointPolicy(StrEnum):
    """After which calls a sandbox is checkpointed; one before verification comes with both."""

    EVERY_CALL = "every_call"
    EVERY_TURN = "every_turn"
    OFF = "off"


class OnRewardError(StrEnum):
    """What becomes of a rollout whose verifier fails, however often it is tried."""

    FAIL = "fail"
    """It has no reward: an infrastructure failure."""
    ZERO = "zero"
    """It has reward 0, and its record says that the verifier failed."""


class ToolSelection(Record):
    """Which toolsets a run offers: all available, the enabled ones, or a sample of a distribution."""

    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] = ()
    distribution: str | None = None


class Rendering(Record):
    """How conversations become tokens and tokens messages, as `clotho.rendering.resolve` takes it."""

    tokenizer: str = ""
    """A name on the Hugging Face hub, a folder where models are called from, or clotho-tiny. Empty: the model's."""
    renderer: str | None = None
    tool_call_parser: str | None = None
    thinking_mode: bool = False


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
        """With the model's name, which is also its tokenizer's where that has none."""
        rendering = self.rendering
        if rendering is not None and not rendering.tokenizer:
            rendering = rendering.model_copy(update={"tokenizer": model})
        return self.model_copy(update={"model": model, "rendering": rendering})

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


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
