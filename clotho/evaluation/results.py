"""The results of a run as the store has them: scored items, and what became of the others."""

from collections import Counter
from collections.abc import Sequence

from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import item_name
from clotho.identifiers.keys import attempt_prefix
from clotho.journal import Journal
from clotho.rollouts.group import AttemptEntry, GroupEntry, SiblingFailure
from clotho.rollouts.run import RunManifest
from clotho.runs.disturbances import disturbances_of
from clotho.runs.groups import group_ids, scored_among, target_groups
from clotho.runs.manifest import read_manifest


class RunResults(FrozenModel):
    """The scored groups of a run, and counts of what has no score."""

    manifest: RunManifest
    items: int
    """Items that the run is to roll out."""
    groups: tuple[GroupEntry, ...]
    """The scored ones."""
    failures: tuple[SiblingFailure, ...] = ()
    """Rollouts that failed in the last attempt at each group that isn't scored."""

    @property
    def failed(self) -> dict[str, int]:
        """Kind of failure -> rollouts that failed for it, the most frequent first."""
        return dict(Counter(failure.kind for failure in self.failures).most_common())

    @property
    def scores(self) -> list[list[float]]:
        return [[each.score for each in entry.siblings] for entry in self.groups]

    @property
    def unscored(self) -> int:
        """Items without a score: not rolled out yet, or with a rollout that failed."""
        return self.items - len(self.groups)

    @property
    def by_item(self) -> dict[str, list[float]]:
        """The scores of all rollouts of each item, by the item's name."""
        found: dict[str, list[float]] = {}
        for entry, scores in zip(self.groups, self.scores, strict=True):
            found.setdefault(item_name(entry.item), []).extend(scores)
        return found

    @property
    def disturbances(self) -> dict[str, int]:
        """Rollouts with each disturbance."""
        return dict(
            Counter(
                str(kind)
                for entry in self.groups
                for each in entry.siblings
                for kind in disturbances_of(each, entry.repairs)
            )
        )


async def read_results(journal: Journal, run: str) -> RunResults:
    """The run's results so far. Raises InvalidInput for a run that the store doesn't have."""
    manifest = await read_manifest(journal, run)
    groups = await group_ids(journal, run)
    scored = {group: entry async for group, entry in scored_among(journal, groups)}
    unscored = [group for group in groups if group not in scored]
    target = await target_groups(journal, run)
    return RunResults(
        manifest=manifest,
        # more may be scored than the last start of the run has asked for
        items=max(len(scored), len(groups) if target is None else target),
        groups=tuple(scored.values()),
        failures=await _failures(journal, run, unscored),
    )


async def _failures(journal: Journal, run: str, groups: Sequence[str]) -> tuple[SiblingFailure, ...]:
    last: dict[str, str] = {}
    if groups:
        # one listing for all groups; keys come sorted, so that the last attempt stays
        for key in await journal.keys(f"{run}/"):
            last[key.rpartition("/")[0] + "/"] = key
    keys = [last[prefix] for prefix in map(attempt_prefix, groups) if prefix in last]
    attempts = await journal.read_many(keys, AttemptEntry)
    return tuple(failure for attempt in attempts if attempt is not None for failure in attempt.failures)
