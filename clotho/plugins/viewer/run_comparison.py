"""Two runs side by side: their sums, and their rewards on the items that both have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from clotho.evaluation.comparison import Paired, paired
from clotho.evaluation.figures import DIFFERENCE
from clotho.plugins.viewer.compare import Row
from clotho.plugins.viewer.listing import RunSums
from clotho.plugins.viewer.rows import GroupRow

MOST_SHOWN = 50


@dataclass(frozen=True)
class Pair:
    """What both runs have of an item: its groups, and their mean rewards."""

    a: GroupRow
    """The first of them, as `b` is."""
    b: GroupRow
    a_mean: float
    b_mean: float

    @property
    def difference(self) -> float:
        return self.b_mean - self.a_mean


@dataclass(frozen=True)
class ItemByItem:
    """The items of both runs, compared as `clotho eval compare` compares them."""

    items: int
    rewards: Paired
    most: Sequence[Pair]
    """Those that differ most."""


def compared_runs(a: RunSums, b: RunSums) -> list[Row]:
    return [
        Row("scored groups", a.groups, b.groups),
        Row("rollouts", a.rollouts, b.rollouts),
        Row("mean reward", a.mean, b.mean),
        Row("standard deviation", a.deviation, b.deviation),
        Row("groups of one reward", a.undecided, b.undecided),
        Row("turns per rollout", a.turns, b.turns),
        Row("tokens per rollout", a.tokens / max(1, a.rollouts), b.tokens / max(1, b.rollouts)),
        Row("disturbed rollouts", a.disturbed, b.disturbed),
    ]


def compared_items(a: Sequence[GroupRow], b: Sequence[GroupRow]) -> ItemByItem | None:
    """The comparison of rewards item by item; None where the runs have none in common."""
    mine, theirs = _by_item(a), _by_item(b)
    names = [name for name in mine if name in theirs]
    if not names:
        return None
    left, right = [_scores(mine[name]) for name in names], [_scores(theirs[name]) for name in names]
    pairs = [
        Pair(mine[name][0], theirs[name][0], fmean(one), fmean(other))
        for name, one, other in zip(names, left, right, strict=True)
    ]
    differing = sorted((each for each in pairs if each.difference), key=lambda pair: -abs(pair.difference))
    return ItemByItem(len(names), paired(left, right, DIFFERENCE), differing[:MOST_SHOWN])


def _by_item(rows: Sequence[GroupRow]) -> Mapping[str, Sequence[GroupRow]]:
    found: dict[str, list[GroupRow]] = {}
    for row in rows:
        if row.rollouts:
            found.setdefault(row.item, []).append(row)
    return found


def _scores(groups: Sequence[GroupRow]) -> list[float]:
    return [score for group in groups for score in group.scores]
