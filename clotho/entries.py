"""What the journal holds, one record per kind of entry."""

import hashlib
import json

from pydantic import JsonValue

from clotho.inference.base import ChatMessage, SampledTurn, Sampling, ToolCall, ToolSchema
from clotho.records import Lease, Limits, Record, RolloutSummary
from clotho.sandbox.base import SandboxSpec
from clotho.toolsets.base import ToolSettings

Item = dict[str, JsonValue]


class ToolSelection(Record):
    """Which toolsets a run offers: all available, the enabled ones, or a sample of a distribution."""

    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] = ()
    distribution: str | None = None


class RunManifest(Record):
    """What may not change between restarts of a run."""

    run: str
    environment: str
    environment_config: dict[str, JsonValue]
    model: str
    sampling: Sampling
    seed: int
    system_prompt: str | None
    selection: ToolSelection
    tool_settings: ToolSettings
    sandbox: SandboxSpec
    limits: Limits
    group_size: int

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


class Endpoint(Record):
    """Where a run's model is served: may change between restarts, the last entry counts."""

    base_url: str
    api_key_variable: str | None = None
    """The environment variable that holds the key, in the processes that call models."""


class PauseEntry(Record):
    """A run was paused, or went on: the last entry counts."""

    paused: bool
    reason: str = ""


class ItemChunk(Record):
    """Consecutive dataset items of a run."""

    items: tuple[Item, ...]


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
    started: float
    seconds: float


class LeaseEntry(Record):
    """Which sandbox a lease is."""

    incarnation: str
    queue: str
    backend: str


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


class EndEntry(Record):
    """The end of a scored rollout."""

    summary: RolloutSummary


class GroupEntry(Record):
    """A complete, scored group."""

    item: Item
    toolsets: tuple[str, ...]
    siblings: tuple[RolloutSummary, ...]


def difference(ours: RunManifest, theirs: RunManifest) -> str:
    """The fields in which two manifests differ, with both values."""
    mine, other = ours.model_dump(mode="json"), theirs.model_dump(mode="json")
    return "; ".join(
        f"{name}: {json.dumps(other[name])} in the store, {json.dumps(mine[name])} now"
        for name in mine
        if mine[name] != other[name]
    )
