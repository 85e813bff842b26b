"""What crosses the boundary between workflows and activities: references and small counters, never content."""

from datetime import timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from clotho.identifiers import group_id

KEPT_FAILURES = 20
TAKEN_BACK = 10_000
"""Failed groups of one kind, at most, that a run tries again when it stops for that kind."""


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
    keep_diverged: bool = True
    """Whether a rollout goes on in a sandbox that is not what its lost one was; it is marked in any case."""


class Station(Record):
    """Where a kind of work is served, and how patiently it is waited for."""

    queue: str
    in_all: timedelta
    """How long one step may take, outages and all attempts included."""
    heartbeat: timedelta
    """How long a worker may be silent before it counts as dead. Model calls are many: beats cost the server."""

    def on(self, queue: str) -> "Station":
        """The same kind of work on another queue."""
        return self.model_copy(update={"queue": queue})


class Stations(Record):
    """The task queues of a run."""

    workflows: str = "clotho"
    campaigns: str = "clotho-campaigns"
    """Apart from groups and rollouts, since campaigns move on to new versions of the code while these don't."""
    model: Station = Station(queue="clotho-llm", in_all=timedelta(hours=12), heartbeat=timedelta(seconds=30))
    environment: Station = Station(
        queue="clotho-env", in_all=timedelta(hours=6), heartbeat=timedelta(seconds=10)
    )
    sandbox: Station = Station(
        queue="clotho-sandbox", in_all=timedelta(hours=6), heartbeat=timedelta(seconds=10)
    )
    verification: Station | None = None
    """None: where the rollout's sandbox is."""


class RepairBounds(Record):
    """How often siblings that failed for infrastructure reasons are started again."""

    per_group: int = 4
    per_run: int = 200


class CampaignRequest(Record):
    run: str
    environment: str
    groups: int
    """How many groups of the manifest this campaign drives, counted from the first."""
    group_size: int
    limits: Limits
    stations: Stations
    max_open_groups: int = 16
    repairs: RepairBounds = RepairBounds()
    stop_after_failures: int = 8
    """Rollouts that fail in a row for the same reason, no group being scored in between, before the run pauses."""
    next_group: int = 0
    """This and what follows is carried over a continue-as-new."""
    progress: "CampaignProgress | None" = None
    streak: "Streak | None" = None
    failed_alike: dict[str, tuple[int, ...]] = {}
    """Kind of failure -> the items whose groups failed with it: what is tried again if the run stops for it."""

    def group(self, item: int) -> "GroupRequest":
        """What rolls one item out."""
        return GroupRequest(
            run=self.run,
            group=group_id(self.run, item),
            environment=self.environment,
            item=item,
            size=self.group_size,
            limits=self.limits,
            stations=self.stations,
            repairs=self.repairs,
        )


class CampaignProgress(Record):
    """What a campaign has come to so far: also its answer to the query `progress`, and its result."""

    groups: int = 0
    """How many there are to do; 0 before the items are enumerated."""
    running: int = 0
    paused: str | None = None
    """Why no group is started and no turn is sampled; None while the run goes on."""
    skipped: int = 0
    """Groups that were scored before this campaign started."""
    scored: int = 0
    failed: int = 0
    failures: "tuple[SiblingFailure, ...]" = ()
    """The first twenty."""
    rollouts: int = 0
    turns: int = 0
    tool_calls: int = 0
    sampled_tokens: int = 0
    reward_sum: float = 0.0

    def with_group(self, group: "GroupSummary") -> "CampaignProgress":
        siblings = group.siblings
        return self.model_copy(
            update={
                "scored": self.scored + 1,
                "rollouts": self.rollouts + len(siblings),
                "turns": self.turns + sum(sibling.turns for sibling in siblings),
                "tool_calls": self.tool_calls + sum(sibling.tool_calls for sibling in siblings),
                "sampled_tokens": self.sampled_tokens + sum(sibling.sampled_tokens for sibling in siblings),
                "reward_sum": self.reward_sum + sum(sibling.score for sibling in siblings),
            }
        )

    def with_failure(self, failure: "SiblingFailure") -> "CampaignProgress":
        return self.model_copy(
            update={"failed": self.failed + 1, "failures": (*self.failures, failure)[:KEPT_FAILURES]}
        )


class Streak(Record):
    """Rollouts that failed one after the other for the same reason, no group being scored in between."""

    kind: str = ""
    reason: str = ""
    rollouts: int = 0

    def with_group(self, failures: "tuple[SiblingFailure, ...]") -> "Streak":
        """After one more failed group: a new streak unless all of it failed as the ones before did."""
        last = failures[-1]
        if any(failure.kind != last.kind for failure in failures):
            return Streak()
        before = self.rollouts if self.kind == last.kind else 0
        return Streak(kind=last.kind, reason=last.reason, rollouts=before + len(failures))

    def __str__(self) -> str:
        return f"{self.rollouts} rollouts in a row failed alike: {self.reason}"


class ModelCheck(Record):
    run: str


class PauseRequest(Record):
    """A run that stops itself, and why."""

    run: str
    reason: str


class ItemsRequest(Record):
    run: str
    groups: int


class UnfinishedRequest(Record):
    run: str
    first: int
    groups: int


class GroupRequest(Record):
    run: str
    group: str
    environment: str
    item: int
    """Index of the dataset item in the run's manifest."""
    size: int
    limits: Limits
    stations: Stations
    repairs: RepairBounds = RepairBounds()

    def sibling(self, rollout: str) -> "RolloutRequest":
        """What runs one of its rollouts."""
        return RolloutRequest(
            run=self.run,
            rollout=rollout,
            environment=self.environment,
            limits=self.limits,
            stations=self.stations,
        )


class AwaitClosed(Record):
    workflow: str


class PreparedGroup(Record):
    """What resolving a group's tools came to, and who its siblings are by now."""

    siblings: tuple[str, ...]
    """The rollouts to run: replacements in place of those that can't go on."""
    attempt: int
    """How many attempts at the group ended incomplete."""

    toolsets: tuple[str, ...]
    tools: tuple[str, ...]
    unavailable: tuple[str, ...]


class RolloutRequest(Record):
    run: str
    rollout: str
    environment: str
    limits: Limits
    stations: Stations
    paused: bool = False
    """This and `state` are carried over a continue-as-new."""
    state: "RolloutState | None" = None


class RolloutState(Record):
    """All that the agent loop remembers between steps."""

    turn: int = 0
    sampled_tokens: int = 0
    prompt_tokens: int = 0
    active_seconds: float = 0.0
    tool_calls: int = 0
    tool_errors: int = 0
    lease: "Lease | None" = None
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""
    losses: "tuple[Fidelity, ...]" = ()
    """Of the sandboxes that followed lost ones, in their order."""
    model_queue: str | None = None
    """The queue of the process that samples this rollout's turns: a call in flight is found again only there."""
    tool_state: dict[str, str] = {}
    """Slot of state that tools keep between calls -> id of the call that last wrote it."""

    def after_turn(self, turn: "TurnResult") -> "RolloutState":
        return self.model_copy(
            update={
                "turn": self.turn + 1,
                "sampled_tokens": self.sampled_tokens + turn.sampled_tokens,
                "prompt_tokens": self.prompt_tokens + turn.prompt_tokens,
                "active_seconds": self.active_seconds + turn.seconds,
            }
        )

    def after_call(self, call: "CallResult") -> "RolloutState":
        return self.model_copy(
            update={
                "tool_calls": self.tool_calls + 1,
                "tool_errors": self.tool_errors + call.failed,
                "active_seconds": self.active_seconds + call.seconds,
                "tool_state": self.tool_state | dict.fromkeys(call.wrote_state, call.call),
                "checkpoint": call.call if call.checkpointed else self.checkpoint,
            }
        )

    def limit_met(self, limits: Limits) -> str | None:
        """The name of the first limit that leaves no room for another turn."""
        spent: tuple[tuple[str, float, float | None], ...] = (
            ("max_turns", self.turn, limits.max_turns),
            ("max_sampled_tokens", self.sampled_tokens, limits.max_sampled_tokens),
            ("max_active_seconds", self.active_seconds, limits.max_active_seconds),
        )
        return next((name for name, used, bound in spent if bound is not None and used >= bound), None)


class Ending(Record):
    """How the agent's part of a rollout ended."""

    outcome: Outcome
    limit: str | None = None
    """Set for LIMIT_REACHED: which one; for POLICY_KILLED: what ran out (memory, processes, disk), if known."""


class ModelProcessRequest(Record):
    """Which process shall sample a rollout's turns: the one at `queue`, while it is there."""

    rollout: str
    queue: str | None


class RolloutStart(Record):
    """Where a rollout begins, or begins again."""

    scored: "RolloutSummary | None" = None
    """What an earlier run of it came to."""
    model_queue: str | None = None
    """Of the process that samples its turns, where there are any left."""


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
    truncated: bool
    """The answer was cut off at the turn's token limit."""
    prompt_tokens: int
    sampled_tokens: int
    seconds: float


class Fidelity(StrEnum):
    """How well a sandbox that followed a lost one was made to be what that was."""

    EXACT = "exact"
    RESTORED = "restored"
    """From a checkpoint beside which something ran, or lay, that it doesn't hold."""
    REPLAYED = "replayed"
    """Commands since the checkpoint were run again, and came to the same."""
    DIVERGED = "diverged"
    """They came to something else."""


class LeaseRequest(Record):
    run: str
    rollout: str
    number: int = 0
    turns: int = 0
    """How many turns were sampled: what a lease after the first is restored to."""


class Lease(Record):
    """A sandbox held by a rollout: its number, and the queue of the host it lives on."""

    number: int
    queue: str
    fidelity: Fidelity | None = None


class HostCheck(Record):
    rollout: str
    queue: str


class CallRequest(Record):
    run: str
    rollout: str
    turn: int
    index: int
    lease: Lease | None
    """None for a tool that needs no sandbox."""
    tool_state: dict[str, str]
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""


class CallResult(Record):
    call: str
    failed: bool
    seconds: float
    wrote_state: tuple[str, ...] = ()
    """The slots of tool state that this call wrote."""
    checkpointed: bool = False
    replayed: Fidelity | None = None
    """Set where it was made in a lost sandbox, known of only now, and made again in this one: what that came to."""


class RewardRequest(Record):
    run: str
    rollout: str
    ending: Ending
    turns: int
    lease: Lease | None
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""


class RewardResult(Record):
    score: float
    lease: Lease | None
    """The sandbox it verified in, which verification may have opened itself."""


class ReleaseRequest(Record):
    run: str
    rollout: str
    lease: Lease


class ConcludeRequest(Record):
    run: str
    rollout: str
    ending: Ending
    state: RolloutState


class RolloutSummary(Record):
    """The end of a scored rollout, small enough for a workflow result."""

    rollout: str
    replacement_of: str | None = None
    """The sibling in whose stead it started from scratch. That favours short rollouts: it can be left out."""
    ending: Ending
    score: float
    reward_error: bool = False
    """The score is 0 because the verifier failed, as the run asks for: it can be left out."""
    turns: int
    tool_calls: int
    tool_errors: int
    prompt_tokens: int
    sampled_tokens: int
    active_seconds: float
    losses: tuple[Fidelity, ...] = ()
    """How each sandbox that followed a lost one was made: leave out what isn't exact enough for you."""


class SiblingFailure(Record):
    """A rollout or group that ended without a result, and why."""

    workflow: str
    kind: str
    """The type of the error: failures of one kind in a row have one cause."""
    reason: str


class GroupFailure(Record):
    """The details of a group that failed."""

    failures: tuple[SiblingFailure, ...]


class GroupAttempt(Record):
    """An attempt at a group that ends incomplete."""

    run: str
    group: str
    number: int
    siblings: tuple[RolloutSummary, ...]
    failures: tuple[SiblingFailure, ...]


class RepairRequest(Record):
    """A sibling that shall be started again, if the bounds allow."""

    run: str
    group: str
    attempt: int
    number: int
    """Of this repair, within the attempt at the group."""
    failure: SiblingFailure
    from_scratch: bool
    bounds: RepairBounds


class GroupConclusion(Record):
    run: str
    group: str
    siblings: tuple[RolloutSummary, ...]


class GroupSummary(Record):
    group: str
    siblings: tuple[RolloutSummary, ...]
