"""Two evaluations of the same items, paired item by item."""

import statistics
from collections.abc import Sequence

from clotho.errors import InvalidInput
from clotho.evaluation.figures import Power, power_of
from clotho.evaluation.results import RunResults
from clotho.evaluation.statistics import Estimate, mean_difference, mean_of_items, sign_test
from clotho.frozen_model import FrozenModel
from clotho.runs.manifest import differing_fields

EXPECTED = ("run", "model", "seed")
"""Fields of manifests in which runs that are compared differ by nature."""


class Paired(FrozenModel):
    """One measure of the items of both runs."""

    a: Estimate
    b: Estimate
    difference: Estimate
    """B less A."""
    better: int
    worse: int
    """Items at which B is better, and worse."""
    sign_test: float
    """The two-sided p of as uneven a split of the items that differ, if either were as likely."""
    power: Power | None
    """None where all items differ by as much."""


class Comparison(FrozenModel):
    a: str
    b: str
    items: int
    """Items that both have scored."""
    only_a: int
    only_b: int
    """Items that are left out, since the other run hasn't scored them."""
    settings: tuple[str, ...]
    """Fields of the runs' settings that differ, other than model and seed."""
    success: float
    reward: Paired
    passed: Paired
    """Shares of rollouts with the least reward that passes: pass@1."""


def compared(a: RunResults, b: RunResults, success: float, difference: float) -> Comparison:
    """The comparison; items are told by their `id`, or else their content.

    Raises InvalidInput where no item is scored in both.
    """
    mine, theirs = a.by_item, b.by_item
    names = [name for name in mine if name in theirs]
    if not names:
        raise InvalidInput(f"{a.manifest.run} and {b.manifest.run} have no scored item in common")
    left, right = [mine[name] for name in names], [theirs[name] for name in names]
    differing = differing_fields(a.manifest, b.manifest)
    return Comparison(
        a=a.manifest.run,
        b=b.manifest.run,
        items=len(names),
        only_a=len(mine) - len(names),
        only_b=len(theirs) - len(names),
        settings=tuple(each for each in differing if each not in EXPECTED),
        success=success,
        reward=paired(left, right, difference),
        passed=paired(_has_passed(left, success), _has_passed(right, success), difference),
    )


def paired(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], difference: float) -> Paired:
    """The comparison of the means of the same items."""
    mine, theirs = [statistics.fmean(item) for item in a], [statistics.fmean(item) for item in b]
    differences = [right - left for left, right in zip(mine, theirs, strict=True)]
    better, worse = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    # one item tells nothing of a deviation: at 0 there is no power to tell of
    deviation = statistics.stdev(differences) if len(differences) > 1 else 0.0
    return Paired(
        a=mean_of_items(a),
        b=mean_of_items(b),
        difference=mean_difference(mine, theirs),
        better=better,
        worse=worse,
        sign_test=sign_test(better, worse),
        power=power_of(deviation, len(differences), difference),
    )


def _has_passed(scores: Sequence[Sequence[float]], success: float) -> list[list[float]]:
    return [[float(score >= success) for score in item] for item in scores]
