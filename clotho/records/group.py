"""A group of siblings: what it is asked, what failed in it, and its end."""

from clotho.records.base import Record
from clotho.records.outcome import Limits
from clotho.records.rollout import RolloutRequest, RolloutSummary
from clotho.records.stations import Stations


class RepairBounds(Record):
    """How often siblings that failed for infrastructure reasons are started again."""

    per_group: int = 4
    per_run: int = 200


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

    def sibling(self, rollout: str) -> RolloutRequest:
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


class AwaitAnyClosed(Record):
    run: str
    workflows: tuple[str, ...]


class PreparedGroup(Record):
    """What resolving a group's tools came to, and who its siblings are by now."""

    siblings: tuple[str, ...]
    """The rollouts to run: replacements in place of those that can't go on."""
    attempt: int
    """How many attempts at the group ended incomplete."""

    toolsets: tuple[str, ...]
    tools: tuple[str, ...]
    unavailable: tuple[str, ...]


class SiblingFailure(Record):
    """A rollout or group that ended without a result, and why."""

    workflow: str
    kind: str
    """The type of the error: failures of one kind in a row have one cause."""
    reason: str


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


class GroupConclusion(Record):
    run: str
    group: str
    siblings: tuple[RolloutSummary, ...]


class GroupSummary(Record):
    group: str
    siblings: tuple[RolloutSummary, ...]
