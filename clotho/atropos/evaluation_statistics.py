"""Statistics of an evaluation: mean, pass@k and a confidence interval."""

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
    """The mean score over items, each item's the mean of its rollouts, with an interval at 95 %.

    It is over items, since rollouts of one item aren't independent: Wilson's score interval (Wilson 1927) where
    every item passed or failed as a whole, else Student's t with one degree of freedom less than there are items.
    Infinite for a single item.
    """
    means = [statistics.fmean(item) for item in scores]
    mean, number = statistics.fmean(means), len(means)
    if number < 2:
        return Estimate(mean, -math.inf, math.inf)
    if set(means) <= {0.0, 1.0}:
        return Estimate(mean, *wilson(mean, number))
    reach = student_quantile(number - 1) * statistics.stdev(means) / math.sqrt(number)
    return Estimate(mean, mean - reach, mean + reach)


def wilson(share: float, number: int) -> tuple[float, float]:
    """The interval of a probability that came out as `share` of `number` trials: Wilson 1927, equation 12."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    spread = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    middle, scale = share + z * z / (2 * number), 1 + z * z / number
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def student_quantile(degrees: int) -> float:
    """The two-sided quantile of Student's t at the level CONFIDENCE, by bisection."""
    low, high = 0.0, math.pi / 2
    while high - low > 1e-14:
        angle = (low + high) / 2
        low, high = (angle, high) if _student_within(angle, degrees) < CONFIDENCE else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


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


def pass_at(k: int, scores: Sequence[Sequence[float]], success: float) -> float:
    """The probability that one of `k` rollouts of an item passes: the unbiased estimator of Chen et al. 2021."""
    chances = []
    for item in scores:
        passed = sum(score >= success for score in item)
        chances.append(1.0 - math.comb(len(item) - passed, k) / math.comb(len(item), k))
    return statistics.fmean(chances)
