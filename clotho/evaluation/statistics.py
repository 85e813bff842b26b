"""Statistics of an evaluation: means, pass@k and pass^k with confidence intervals, and paired differences.

Every figure is a mean over items, since rollouts of one item aren't independent of each other.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
POWER = 0.8
"""The chance with which a comparison is to find a difference that is there."""
FEWEST_ITEMS = 5
"""Items for an interval by resampling, which stays within the values seen: n hold a median at 1 - 2^(1 - n)."""
MOST_RESAMPLES = 10_000
FEWEST_RESAMPLES = 1_000
# bounds the time that an interval of many items takes
MOST_DRAWS = 20_000_000
# indices and values of 8 bytes: 32 MB at a time
DRAWS_AT_ONCE = 2_000_000
SEED = 0
"""Seed of the resampling: equal scores have equal intervals."""

Scores = Sequence[Sequence[float]]
"""The scores of each item's rollouts."""


@dataclass(frozen=True)
class Estimate:
    """A mean with its confidence interval, which is infinite where the items can't tell."""

    mean: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low)


def mean_of_items(scores: Scores) -> Estimate:
    """The mean score over items, each item's the mean of its rollouts, with an interval at 95 %."""
    return _estimate([statistics.fmean(item) for item in scores])


def pass_at(k: int, scores: Scores, success: float) -> Estimate:
    """pass@k, the chance that one of `k` rollouts of an item passes: the unbiased estimator of Chen et al. 2021."""
    return _estimate([1.0 - _all_of(k, failed, size) for failed, size in _count_failed(scores, success)])


def pass_all(k: int, scores: Scores, success: float) -> Estimate:
    """pass^k, the chance that each of `k` rollouts of an item passes: the unbiased estimator of Yao et al. 2024."""
    return _estimate([_all_of(k, size - failed, size) for failed, size in _count_failed(scores, success)])


def mean_difference(one: Sequence[float], other: Sequence[float]) -> Estimate:
    """The mean of `other` less that of `one`, paired by item, so that hard items don't widen the interval."""
    differences = [b - a for a, b in zip(one, other, strict=True)]
    return Estimate(statistics.fmean(differences), *_resample(differences))


def sign_test(better: int, worse: int) -> float:
    """The two-sided p of as uneven a split of the items that differ: exact, by the binomial distribution."""
    number, term, tail = better + worse, 1, 0
    for at in range(min(better, worse) + 1):
        # binomial coefficients, each from the one before: whole numbers stay exact
        tail += term
        term = term * (number - at) // (at + 1)
    return min(1.0, 2 * tail / (1 << number))


def smallest_difference(deviation: float, items: int) -> float:
    """The difference that a comparison of `items` items finds with the chance POWER."""
    return _reach() * deviation / math.sqrt(items)


def items_needed(deviation: float, difference: float) -> int:
    """Items to find a `difference` with the chance POWER, where items' differences have this standard deviation."""
    return max(1, math.ceil((_reach() * deviation / difference) ** 2))


def wilson(share: float, number: int) -> tuple[float, float]:
    """The interval of a probability that came out as `share` of `number` trials: Wilson 1927, equation 12."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    spread = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    middle, scale = share + z * z / (2 * number), 1 + z * z / number
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def student_quantile(degrees: int) -> float:
    """The two-sided quantile of Student's t at the level CONFIDENCE, by bisection."""
    # over the angle of t = sqrt(degrees) * tan(angle), which is bounded, as t is not
    low, high = 0.0, math.pi / 2
    while high - low > 1e-14:
        angle = (low + high) / 2
        low, high = (angle, high) if _student_within(angle, degrees) < CONFIDENCE else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def _estimate(values: Sequence[float]) -> Estimate:
    """The mean of items' values; with Wilson's interval where all are 0 or 1, which is never of no width."""
    mean = statistics.fmean(values)
    if set(values) <= {0.0, 1.0} and len(values) > 1:
        return Estimate(mean, *wilson(mean, len(values)))
    return Estimate(mean, *_resample(values))


def _resample(values: Sequence[float]) -> tuple[float, float]:
    """The interval of the mean by bootstrap over items: the expanded percentile interval of Hesterberg 2015, 5.3.

    Plain percentiles are too narrow for few items. Infinite below FEWEST_ITEMS, and where all items are the same.
    """
    number = len(values)
    if number < FEWEST_ITEMS or min(values) == max(values):
        return -math.inf, math.inf
    tail = NormalDist().cdf(-math.sqrt(number / (number - 1)) * student_quantile(number - 1))
    low, high = np.quantile(_resampled_means(np.asarray(values, np.float64)), (tail, 1 - tail))
    return float(low), float(high)


def _resampled_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    number, generator = len(values), np.random.default_rng(SEED)
    wanted = min(MOST_RESAMPLES, max(FEWEST_RESAMPLES, MOST_DRAWS // number))
    at_once = max(1, DRAWS_AT_ONCE // number)
    parts = [
        values[generator.integers(number, size=(min(at_once, wanted - done), number))].mean(axis=1)
        for done in range(0, wanted, at_once)
    ]
    return np.concatenate(parts)


def _count_failed(scores: Scores, success: float) -> list[tuple[int, int]]:
    """Counts of each item: rollouts that failed, and all rollouts."""
    return [(sum(score < success for score in item), len(item)) for item in scores]


def _all_of(k: int, number: int, size: int) -> float:
    """The chance that `k` of `size` rollouts, drawn without putting any back, are all among `number` of them."""
    return math.comb(number, k) / math.comb(size, k)


def _reach() -> float:
    """Standard errors between no difference and one that is found with the chance POWER."""
    return NormalDist().inv_cdf((1 + CONFIDENCE) / 2) + NormalDist().inv_cdf(POWER)


def _student_within(angle: float, degrees: int) -> float:
    """P(|t| < sqrt(degrees) * tan(angle)): Abramowitz and Stegun 1964, 26.7.3 and 26.7.4."""
    cosine, odd = math.cos(angle), degrees % 2 == 1
    term, total = (cosine if odd else 1.0), 0.0
    for at in range(1 if odd else 0, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (at + 1) / (at + 2)
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
