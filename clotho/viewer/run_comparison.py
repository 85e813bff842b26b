"""Two runs side by side: their sums, and their rewards on the items that both have."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from clotho.evaluation.statistics import sign_test
from clotho.viewer.compare import Row
from clotho.viewer.listing import RunSums
from clotho.viewer.rows import GroupRow, deviation

MOST_SHOWN = 50


@dataclass(frozen=True)
class Pair:
    """The groups of both runs that rolled the same item out."""

    a: GroupRow
    b: GroupRow

    @property
    def difference(self) -> float:
        return self.b.mean - self.a.mean


@dataclass(frozen=True)
class Paired:
    """Mean rewards of items that both runs have once each, as B less A."""

    items: int
    mean: float
    error: float
    """The standard error of the mean difference, over items."""
    better: int
    worse: int
    """Items with a higher mean reward in B, and in A."""
    sign_test: float
    """The two-sided p of as uneven a split."""
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


def paired(a: Sequence[GroupRow], b: Sequence[GroupRow]) -> Paired | None:
    """The comparison item by item; None where the runs have none in common. Items are told by their labels."""
    mine, theirs = _by_item(a), _by_item(b)
    pairs = [Pair(row, theirs[label]) for label, row in mine.items() if label in theirs]
    if not pairs:
        return None
    differences = [pair.difference for pair in pairs]
    better, worse = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    return Paired(
        items=len(pairs),
        mean=fmean(differences),
        error=deviation(differences) / math.sqrt(max(1, len(pairs) - 1)),
        better=better,
        worse=worse,
        sign_test=sign_test(better, worse),
        most=sorted((each for each in pairs if each.difference), key=lambda pair: -abs(pair.difference))[
            :MOST_SHOWN
        ],
    )


def _by_item(rows: Sequence[GroupRow]) -> dict[str, GroupRow]:
    """Groups by their items' labels, where a label is one group's alone."""
    counts = Counter(row.label for row in rows)
    return {row.label: row for row in rows if counts[row.label] == 1}
