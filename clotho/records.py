"""What crosses the boundary between workflows and activities: references and small counters, never content."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen value; unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Outcome(StrEnum):
    """What a scored rollout came to. Cancelled and infrastructure-failed ones end as workflow states instead."""

    COMPLETED = "completed"
    LIMIT_REACHED = "limit_reached"
    CONTEXT_OVERFLOW = "context_overflow"
    POLICY_KILLED = "policy_killed"


class Limits(Record):
    """What a rollout may spend; all of it counts journalled active work, never outages or pauses."""

    max_turns: int = 30
    max_sampled_tokens: int | None = None
    max_active_seconds: float | None = None


class Queues(Record):
    """Where each kind of work of a run is served."""

    workflows: str = "clotho"
    llm: str = "clotho-llm"
    environment: str = "clotho-env"
    sandbox: str = "clotho-sandbox"


class CampaignRequest(Record):
    run: str
    groups: int
    """How many groups of the manifest this campaign drives, counted from the first."""
    group_size: int
    limits: Limits
    queues: Queues
    max_open_groups: int = 16
    next_group: int = 0
    progress: "CampaignProgress | None" = None
    """Carried over a continue-as-new."""


class CampaignProgress(Record):
    scored: int = 0
    failed: int = 0
    failed_groups: tuple[str, ...] = ()
    """The first twenty."""


class ManifestRequest(Record):
    run: str
    groups: int


class UnfinishedRequest(Record):
    run: str
    first: int
    groups: int


class GroupRequest(Record):
    run: str
    group: str
    item: int
    """Index of the dataset item in the run's manifest."""
    size: int
    limits: Limits
    queues: Queues


class PreparedGroup(Record):
    """What resolving a group's tools came to."""

    toolsets: tuple[str, ...]
    tools: tuple[str, ...]
    unavailable: tuple[str, ...]


class RolloutRequest(Record):
    run: str
    rollout: str
    environment: str
    limits: Limits
    queues: Queues
    state: "RolloutState | None" = None
    """Carried over a continue-as-new."""


class RolloutState(Record):
    """All that the agent loop remembers between steps."""

    turn: int = 0
    sampled_tokens: int = 0
    prompt_tokens: int = 0
    active_seconds: float = 0.0
    tool_calls: int = 0
    tool_errors: int = 0
    lease: "Lease | None" = None
    tool_state: dict[str, str] = {}
    """Slot of state that a tool keeps between calls -> id of the call that last wrote it."""


class TurnRequest(Record):
    run: str
    rollout: str
    turn: int


class ToolCallReference(Record):
    """One tool call of a turn. Its arguments stay in the journal."""

    name: str
    """Bounded and escaped: a model invents it."""
    sandboxed: bool


class TurnResult(Record):
    tool_calls: tuple[ToolCallReference, ...]
    context_overflow: bool
    prompt_tokens: int
    sampled_tokens: int
    seconds: float
    queue: str
    """The queue of the process that sampled it."""


class LeaseRequest(Record):
    run: str
    rollout: str
    number: int = 0


class Lease(Record):
    """A sandbox held by a rollout: its number, and the queue of the host it lives on."""

    number: int
    queue: str


class CallRequest(Record):
    run: str
    rollout: str
    turn: int
    index: int
    lease: Lease | None
    tool_state: dict[str, str]


class CallResult(Record):
    failed: bool
    seconds: float
    wrote_state: tuple[str, ...] = ()
    """The slots of tool state that this call wrote."""


class RewardRequest(Record):
    run: str
    rollout: str
    state: RolloutState
    outcome: Outcome
    limit: str | None


class RewardResult(Record):
    score: float
    lease: Lease | None
    """Set where verification had to open the rollout's sandbox itself."""


class ReleaseRequest(Record):
    run: str
    rollout: str
    lease: Lease


class ConcludeRequest(Record):
    run: str
    rollout: str
    outcome: Outcome
    limit: str | None
    state: RolloutState


class RolloutSummary(Record):
    """The end of a scored rollout, small enough for a workflow result."""

    rollout: str
    outcome: Outcome
    limit: str | None
    score: float
    turns: int
    tool_calls: int
    tool_errors: int
    prompt_tokens: int
    sampled_tokens: int
    active_seconds: float


class SiblingFailure(Record):
    """A rollout that ended without a reward, and why."""

    rollout: str
    reason: str


class GroupConclusion(Record):
    run: str
    group: str
    siblings: tuple[RolloutSummary, ...]


class GroupSummary(Record):
    group: str
    siblings: tuple[RolloutSummary, ...]
