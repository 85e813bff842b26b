"""A campaign: its request and its progress."""

from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import group_id
from clotho.rollouts.group import GroupRequest, GroupSummary, RepairBounds, SiblingFailure
from clotho.rollouts.outcome import Limits
from clotho.rollouts.rollout import Work
from clotho.rollouts.task_queues import TaskQueues

KEPT_FAILURES = 20


# bounded, since a continue-as-new carries the items in its request, of at most 2 MiB
MOST_REQUEUED = 10_000
"""Most failed groups of one kind that are requeued when the run pauses for that kind."""


class CampaignProgress(Work):
    """The progress of a campaign: its answer to the query `progress`, and its result."""

    groups: int = 0
    """Groups of the campaign; 0 before the items are enumerated."""
    running: int = 0
    paused: str | None = None
    """Why no group is started and no turn is sampled; None while the run goes on."""
    skipped: int = 0
    """Groups that were scored before this campaign started."""
    scored: int = 0
    failed: int = 0
    failures: tuple[SiblingFailure, ...] = ()
    """The first twenty."""

    def with_group(self, group: GroupSummary) -> "CampaignProgress":
        return self.with_ends(group.siblings).model_copy(update={"scored": self.scored + 1})

    def with_failure(self, failure: SiblingFailure) -> "CampaignProgress":
        return self.model_copy(
            update={"failed": self.failed + 1, "failures": (*self.failures, failure)[:KEPT_FAILURES]}
        )


class FailureStreak(FrozenModel):
    """Rollouts that failed one after the other for the same reason, no group being scored in between."""

    kind: str = ""
    reason: str = ""
    rollouts: int = 0

    def with_group(self, failures: tuple[SiblingFailure, ...]) -> "FailureStreak":
        """After one more failed group: a new streak unless all of it failed as the ones before did."""
        last = failures[-1]
        if any(failure.kind != last.kind for failure in failures):
            return FailureStreak()
        before = self.rollouts if self.kind == last.kind else 0
        return FailureStreak(kind=last.kind, reason=last.reason, rollouts=before + len(failures))

    def __str__(self) -> str:
        return f"{self.rollouts} rollouts in a row failed alike: {self.reason}"


class CampaignRequest(FrozenModel):
    run: str
    environment: str
    groups: int
    """Groups of the manifest that this campaign runs, counted from the first."""
    group_size: int
    limits: Limits
    task_queues: TaskQueues
    max_open_groups: int = 16
    repairs: RepairBounds = RepairBounds()
    stop_after_failures: int = 8
    """Rollouts that fail in a row for the same reason, no group being scored in between, before the run pauses."""
    priority: int | None = None
    """Order in the queues that several runs share: 1 comes first, 5 last; None: 3."""
    look_ahead: int = 500
    """Groups that are looked up at once; scored ones are skipped without a workflow."""
    next_group: int = 0
    """The first group that was not looked up. This and the fields below are carried over a continue-as-new."""
    waiting: tuple[int, ...] = ()
    """Items that were looked up and not started, or are to be tried again."""
    open: tuple[int, ...] = ()
    """Items whose groups were running."""
    progress: CampaignProgress | None = None
    streak: FailureStreak | None = None
    failed_alike: dict[str, tuple[int, ...]] = {}
    """Kind of failure -> items whose groups failed with it: they are requeued if the run pauses for that kind."""

    def group(self, item: int) -> GroupRequest:
        """The request for the group that rolls out one item."""
        return GroupRequest(
            run=self.run,
            group=group_id(self.run, item),
            environment=self.environment,
            item=item,
            size=self.group_size,
            limits=self.limits,
            task_queues=self.task_queues,
            repairs=self.repairs,
        )

    def grows_into(self, asked: "CampaignRequest") -> bool:
        """Whether a campaign with this request can take `asked` up while it runs."""
        growth = {"groups": max(self.groups, asked.groups), "max_open_groups": asked.max_open_groups}
        return asked == self.model_copy(update=growth)


class CampaignGrowth(FrozenModel):
    """The settings of a campaign that may change while it runs."""

    groups: int
    max_open_groups: int


class ItemsRequest(FrozenModel):
    run: str
    groups: int


class UnfinishedRequest(FrozenModel):
    run: str
    first: int
    last: int
    """The first item beyond those that are asked for."""
    at_once: int


class Unfinished(FrozenModel):
    """The next items whose groups aren't scored; scored ones before them are skipped."""

    items: tuple[int, ...]
    next_group: int
    """The first item that was not looked up."""


class PauseRequest(FrozenModel):
    run: str
    reason: str
