"""What the journal holds, one record per kind of entry."""

import hashlib
import json
from enum import StrEnum

from pydantic import JsonValue

from clotho.inference.base import (
    ChatMessage,
    Inference,
    SampledTurn,
    Sampling,
    ToolCall,
    ToolSchema,
    VersionSpan,
)
from clotho.records.base import Record
from clotho.records.group import GroupRequest, RepairBounds, SiblingFailure
from clotho.records.lease import Fidelity, Lease
from clotho.records.outcome import Limits
from clotho.records.rollout import RolloutSummary
from clotho.records.stations import Stations
from clotho.sandbox.base import SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint
from clotho.toolsets.base import ToolSettings

Item = dict[str, JsonValue]


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
    api_key_variable: str | None = None
    """The environment variable that holds the key, in the processes that call models."""
    inference: Inference = Inference.CHAT


class PauseEntry(Record):
    """A run was paused, or went on: the last entry counts."""

    paused: bool
    reason: str = ""


class ItemChunk(Record):
    """Consecutive dataset items of a run."""

    items: tuple[Item, ...]


class DrawnItem(Record):
    """An item that was drawn by itself, and the group that rolls it out."""

    item: Item
    group: str
    step: int
    """The trainer's, when it was drawn."""


class DrawnOrder(Record):
    """How a run's groups are rolled out whose items are drawn one at a time: the last entry counts."""

    stations: Stations = Stations()
    repairs: RepairBounds = RepairBounds()

    def group(self, manifest: RunManifest, group: str, item: int) -> GroupRequest:
        """What rolls the run's item number `item` out."""
        return GroupRequest(
            run=manifest.run,
            group=group,
            environment=manifest.environment,
            item=item,
            size=manifest.group_size,
            limits=manifest.limits,
            stations=self.stations,
            repairs=self.repairs,
        )


class Delivery(Record):
    """The end of a drawn group's way: the trainer's API has it, or it is never sent.

    `reason` is then one word for why.
    """

    reason: str | None = None
    detail: str = ""


class OfferedTool(Record):
    name: str
    toolset: str
    sandboxed: bool
    tool_schema: ToolSchema


class ToolManifest(Record):
    """The tools of one group: the same for all of its siblings."""

    toolsets: tuple[str, ...]
    tools: tuple[OfferedTool, ...]
    unavailable: dict[str, str]
    """Tool -> why it was dropped."""

    def offered(self, name: str) -> OfferedTool | None:
        return next((tool for tool in self.tools if tool.name == name), None)


class Prompt(Record):
    """What a rollout starts from."""

    item: Item
    messages: tuple[ChatMessage, ...]
    seed: int
    workspace_files: dict[str, str] = {}
    """Path -> base64 content, put into the sandbox before the first command."""


class TurnEntry(Record):
    """A sampled turn, or the finding that the prompt no longer fits."""

    sampled: SampledTurn | None
    context_overflow: str | None = None
    """The model server's words."""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.sampled.message.tool_calls if self.sampled is not None else ()


class StreamEntry(Record):
    """Tokens of a turn that arrived before it ended: what it is continued from."""

    offset: int
    """Of the first of `ids` among the turn's."""
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampling_mask: tuple[tuple[int, ...], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    """In a turn's first entry."""
    resumed_at: tuple[int, ...] = ()
    """Where the turn had been resumed until then."""
    versions: tuple[VersionSpan, ...] = ()
    """Of the turn's tokens until then, as far as the server said."""
    known_version: str | None = None
    """What the server's weights were when they were last heard of before these tokens were asked for."""
    trainer_step: int | None = None
    """The trainer's, as known when these tokens were asked for."""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    started: float
    seconds: float
    """Of active sampling until then."""


class ToolError(Record):
    """A failed tool call as an environment's author and the metrics see it."""

    turn: int
    tool_name: str
    arguments: str
    error: str
    tool_result: str


class CallEntry(Record):
    """A tool call that was made, and what the model is shown of it."""

    tool: str
    content: str
    error: ToolError | None
    state: dict[str, JsonValue]
    lease: int | None
    """The number of the lease in whose sandbox it was made."""
    started: float
    seconds: float
    checkpoint: Checkpoint | None = None
    """Of the sandbox after this call; the blob is beside the entry."""
    manifest: str | None = None
    """Digest of the workspace after this call, where no checkpoint was taken."""


class CheckpointEntry(Record):
    """The sandbox as it was before verification; None where none could be taken."""

    checkpoint: Checkpoint | None


class LeaseEntry(Record):
    """Which sandbox a lease is."""

    incarnation: str
    queue: str
    """Of the host it is on."""
    fidelity: Fidelity | None = None
    """How well it was restored, where it follows a lost one."""
    covered: str = ""
    """The last call whose effect was in the checkpoint that it started from."""
    made: str = ""
    """The last call whose effect it started with, by that checkpoint or by a replay."""
    shell: str | None = None
    """The job whose shell state it started with."""


class EpochEntry(Record):
    """An attempt at verification was given up; the next one has keys of its own."""

    reason: str


class RewardEntry(Record):
    score: float
    breakdown: dict[str, float]
    log: str
    lease: Lease | None
    epoch: int
    seconds: float
    error: str | None = None
    """How the verifier failed, where the score is 0 for that reason alone."""


class EndEntry(Record):
    """The end of a scored rollout."""

    summary: RolloutSummary


class RepairEntry(Record):
    """A sibling that failed for infrastructure reasons was started again."""

    failure: SiblingFailure
    turns: int
    """How far it had come, in turns and sampled tokens: failures that meet long rollouts more often show here."""
    sampled_tokens: int
    continued_as: str
    """The same rollout, which goes on from its last journalled turn, or a replacement that starts from scratch."""


class AttemptEntry(Record):
    """A group's attempt that ended incomplete."""

    siblings: tuple[RolloutSummary, ...]
    failures: tuple[SiblingFailure, ...]


class GroupEntry(Record):
    """A complete, scored group."""

    item: Item
    toolsets: tuple[str, ...]
    siblings: tuple[RolloutSummary, ...]
    repairs: tuple[RepairEntry, ...] = ()


def difference(ours: Record, theirs: Record) -> str:
    """The fields in which two records of one kind differ, with both values."""
    mine, other = ours.model_dump(mode="json"), theirs.model_dump(mode="json")
    return "; ".join(
        f"{name}: {json.dumps(other[name])} in the store, {json.dumps(mine[name])} now"
        for name in mine
        if mine[name] != other[name]
    )
