"""What an evaluation comes to: mean, pass@k and a confidence interval."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean with its confidence interval."""

    mean: float
    low: float
    high: float


def mean_of_items(scores: Sequence[Sequence[float]]) -> Estimate:
    """The mean score over items, each item's the mean of its rollouts.

    The interval is at 95 % by the normal approximation over items: rollouts of one item aren't independent.
    """
    means = [statistics.fmean(item) for item in scores]
    mean = statistics.fmean(means)
    if len(means) < 2:
        return Estimate(mean, -math.inf, math.inf)
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * statistics.stdev(means) / math.sqrt(len(means))
    return Estimate(mean, mean - reach, mean + reach)


def pass_at(k: int, scores: Sequence[Sequence[float]], success: float) -> float:
    """How likely one of `k` rollouts of an item passes: the unbiased estimator of Chen et al. 2021."""
    chances = []
    for item in scores:
        passed = sum(score >= success for score in item)
        chances.append(1.0 - math.comb(len(item) - passed, k) / math.comb(len(item), k))
    return statistics.fmean(chances)
