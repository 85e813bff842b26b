"""The policy for failures: whether a step is retried or fails, and what becomes of its sandbox, sibling and group.

`POLICIES` has a row for each class of error. Activities ask it when an attempt fails
(`clotho/temporal/failures.py`), workflows when a step has failed for good, the adapter when a group has. Retries
are bounded by time, not by number (`workflows/steps.py`).

A kind is the name of an error's class, which is also its type in Temporal's histories. A class that has no row is
treated as its nearest base that has one; an exception that isn't Clotho's as UNCLASSIFIED.
"""

from dataclasses import dataclass
from enum import StrEnum

from clotho.errors import (
    ClothoError,
    CommandConflict,
    ContextOverflow,
    EnvironmentFailed,
    EnvironmentUnknown,
    FileRefused,
    GradingRepeatedlyLost,
    GradingSandboxLost,
    GroupRejected,
    HostUnavailable,
    InexactTokens,
    InvalidInput,
    IsolationUnavailable,
    JournalCorrupt,
    LeaseElsewhere,
    ModelRejected,
    ModelUnavailable,
    Rejection,
    SandboxDisrupted,
    SandboxDiverged,
    SandboxFenced,
    SandboxLost,
    SandboxUnavailable,
    SandboxUnhealthy,
    ServiceRejected,
    ServiceUnavailable,
    StoreUnavailable,
    TakenOver,
    TokenizerUnavailable,
    Unavailable,
    VerificationFailed,
    VerificationUnrepeatable,
    WorkspaceRefused,
)

DROP_REASONS = (Rejection.ENVIRONMENT_FAILED, Rejection.INFRASTRUCTURE, Rejection.CANCELLED)
"""Reasons for which a group is given up. Where its siblings failed for several, the first counts."""
CANCELLED = "Cancelled"
TERMINATED = "Terminated"
TIMED_OUT = "TimeoutError"
ENVIRONMENT_ATTEMPTS = 3
"""An exception of the author's code may be a flake of something that it calls."""


class StepAction(StrEnum):
    """The action of an activity whose attempt raised the error."""

    RETRY = "retry"
    FAIL = "fail"


class SandboxAction(StrEnum):
    """The action of a rollout on its sandbox, and on the step that failed."""

    KEEP = "keep"
    RESTORE = "restore"
    """Repeat the step in a new sandbox, restored from checkpoint and journal, and count the loss."""
    NEXT_LEASE = "next lease"
    """Repeat the step in the sandbox of the next lease: this one was superseded."""


class SiblingAction(StrEnum):
    """The action of a group on a rollout that failed."""

    REPAIR = "repair"
    """Start the rollout again from its last journalled turn."""
    REPLACE = "replace"
    """Start over, under an id and a seed of its own."""
    FAIL = "fail"
    """Another attempt would meet the same: something has to be mended first, or the failure was asked for."""


class GroupAction(StrEnum):
    """The action of the Atropos adapter on a group that failed."""

    RETRY = "retry"
    """Try the group again, a bounded number of times."""
    WAIT = "wait"
    """Try it again without a bound, since every other group would fail as well."""
    DROP = "drop"
    """Give the group up. No campaign pauses for such failures."""


@dataclass(frozen=True)
class FailurePolicy:
    step: StepAction = StepAction.FAIL
    sandbox: SandboxAction = SandboxAction.KEEP
    sibling: SiblingAction = SiblingAction.REPAIR
    group: GroupAction = GroupAction.RETRY
    attempts: int | None = None
    """Most attempts at a step, as a regular activity; None: while its time lasts, as killed workers use them up."""
    dropped_as: Rejection = Rejection.INFRASTRUCTURE
    """The reason that is kept of a group that was given up."""

    @property
    def cancels_group(self) -> bool:
        return self.sibling is SiblingAction.FAIL and self.group is GroupAction.DROP

    def retries(self, attempt: int) -> bool:
        """Whether the step is tried again after attempt number `attempt`, counted from 1."""
        return self.step is StepAction.RETRY and not self.is_last(attempt)

    def is_last(self, attempt: int) -> bool:
        return self.attempts is not None and attempt >= self.attempts


REFUSAL = FailurePolicy()
OUTAGE = FailurePolicy(step=StepAction.RETRY)
# a fault of the run's settings: every sibling, and every other group, would meet it
OF_THE_RUN = FailurePolicy(sibling=SiblingAction.FAIL, group=GroupAction.WAIT)
OF_THE_AUTHOR = FailurePolicy(
    step=StepAction.RETRY,
    attempts=ENVIRONMENT_ATTEMPTS,
    sibling=SiblingAction.FAIL,
    dropped_as=Rejection.ENVIRONMENT_FAILED,
)
UNCLASSIFIED = OUTAGE
"""A defect can be mended by a deploy while the step is retried."""

POLICIES: dict[str, FailurePolicy] = {
    ClothoError.__name__: REFUSAL,
    InvalidInput.__name__: OF_THE_RUN,
    EnvironmentUnknown.__name__: OF_THE_RUN,
    LeaseElsewhere.__name__: OF_THE_RUN,
    ModelRejected.__name__: OF_THE_RUN,
    ServiceRejected.__name__: OF_THE_RUN,
    JournalCorrupt.__name__: OF_THE_RUN,
    IsolationUnavailable.__name__: FailurePolicy(sibling=SiblingAction.FAIL),
    InexactTokens.__name__: REFUSAL,
    ContextOverflow.__name__: REFUSAL,
    CommandConflict.__name__: REFUSAL,
    FileRefused.__name__: REFUSAL,
    WorkspaceRefused.__name__: REFUSAL,
    # a sibling fails with one of these two only where restoring has failed, too: a new one can go on
    SandboxLost.__name__: FailurePolicy(sandbox=SandboxAction.RESTORE, sibling=SiblingAction.REPLACE),
    SandboxDisrupted.__name__: FailurePolicy(sandbox=SandboxAction.RESTORE, sibling=SiblingAction.REPLACE),
    SandboxFenced.__name__: FailurePolicy(sandbox=SandboxAction.NEXT_LEASE),
    SandboxDiverged.__name__: FailurePolicy(sibling=SiblingAction.REPLACE),
    GradingRepeatedlyLost.__name__: FailurePolicy(sibling=SiblingAction.REPLACE),
    VerificationUnrepeatable.__name__: FailurePolicy(sibling=SiblingAction.REPLACE),
    SandboxUnhealthy.__name__: REFUSAL,
    GroupRejected.__name__: FailurePolicy(group=GroupAction.DROP),
    EnvironmentFailed.__name__: OF_THE_AUTHOR,
    VerificationFailed.__name__: OF_THE_AUTHOR,
    Unavailable.__name__: OUTAGE,
    ModelUnavailable.__name__: OUTAGE,
    TokenizerUnavailable.__name__: OUTAGE,
    ServiceUnavailable.__name__: OUTAGE,
    StoreUnavailable.__name__: OUTAGE,
    SandboxUnavailable.__name__: OUTAGE,
    GradingSandboxLost.__name__: OUTAGE,
    TakenOver.__name__: OUTAGE,
    HostUnavailable.__name__: OUTAGE,
    # of these three Temporal has ended the work itself: no attempt at a step is left
    TIMED_OUT: REFUSAL,
    CANCELLED: FailurePolicy(
        sibling=SiblingAction.FAIL, group=GroupAction.DROP, dropped_as=Rejection.CANCELLED
    ),
    TERMINATED: FailurePolicy(group=GroupAction.DROP, dropped_as=Rejection.CANCELLED),
}


def kind_of(error: BaseException) -> str:
    """The kind of `error`: its class, or the nearest base of it that has a row.

    The rows of time-outs and cancels are Temporal's: Python's TimeoutError is an exception like any other.
    """
    if not isinstance(error, ClothoError):
        name = type(error).__name__
        return f"builtin {name}" if name in POLICIES else name
    return next(base.__name__ for base in type(error).__mro__ if base.__name__ in POLICIES)


def policy_for(kind: str) -> FailurePolicy:
    return POLICIES.get(kind, UNCLASSIFIED)
