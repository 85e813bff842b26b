"""The figures of one evaluation."""

import statistics
from collections import Counter
from collections.abc import Mapping

from clotho.evaluation.results import RunResults
from clotho.evaluation.statistics import (
    Estimate,
    items_needed,
    mean_of_items,
    pass_all,
    pass_at,
    smallest_difference,
)
from clotho.frozen_model import FrozenModel

DIFFERENCE = 0.05
"""The difference in means that hints on power are about, unless another is asked for."""
TWO_RUNS = 2**0.5
"""Standard deviations of the difference of two runs, in those of one, where items have nothing in common."""


class Power(FrozenModel):
    """The verdicts of a comparison of runs."""

    items: int
    deviation: float
    """Standard deviation of the items' differences."""
    smallest: float
    """The difference that a comparison of as many items finds in 4 of 5 cases."""
    difference: float
    needed: int
    """Items with which it finds this difference four times of five."""


class Figures(FrozenModel):
    """A run's estimate of its policy."""

    run: str
    environment: str
    model: str
    items: int
    """Items that the run is to roll out."""
    scored: int
    """Items that are scored: all figures are of them."""
    rollouts: int
    """Scored rollouts."""
    failed: dict[str, int]
    """Kind of failure -> rollouts that failed for it, and so have no reward."""
    disturbances: dict[str, int]
    """Scored rollouts with each disturbance."""
    outcomes: dict[str, int]
    success: float
    """The least reward that passes."""
    reward: Estimate | None = None
    """Means over items, here and below; None where no item is scored."""
    pass_at: dict[int, Estimate] = {}
    """k -> the chance that one of k rollouts passes."""
    pass_all: dict[int, Estimate] = {}
    """k -> the chance that all of k rollouts pass."""
    own: dict[str, float] = {}
    """The environment's own metrics."""
    turns: float = 0.0
    """Turns of a rollout."""
    sampled_tokens: float = 0.0
    """Sampled tokens of a rollout."""
    power: Power | None = None
    """The smallest difference that a comparison over the same items can find; None where the items can't tell."""


def figures_of(
    results: RunResults,
    success: float = 1.0,
    difference: float = DIFFERENCE,
    own: Mapping[str, float] | None = None,
) -> Figures:
    """The figures; `difference` is the one that the hint on power is about."""
    scores, manifest = results.scores, results.manifest
    siblings = [each for entry in results.groups for each in entry.siblings]
    figures = Figures(
        run=manifest.run,
        environment=manifest.environment,
        model=manifest.model,
        items=results.items,
        scored=len(scores),
        rollouts=len(siblings),
        failed=results.failed,
        disturbances=results.disturbances,
        outcomes=dict(Counter(str(each.ending.limit or each.ending.outcome) for each in siblings)),
        success=success,
        own=dict(own or {}),
    )
    if not scores:
        return figures
    # the estimators take k rollouts of every item
    sizes = powers_of_two(min(map(len, scores)))
    means = [statistics.fmean(item) for item in scores]
    return figures.model_copy(
        update={
            "reward": mean_of_items(scores),
            "pass_at": {k: pass_at(k, scores, success) for k in sizes},
            "pass_all": {k: pass_all(k, scores, success) for k in sizes if k > 1},
            "turns": statistics.fmean([each.turns for each in siblings]),
            "sampled_tokens": statistics.fmean([each.sampled_tokens for each in siblings]),
            "power": power_of(TWO_RUNS * statistics.stdev(means), len(means), difference)
            if len(means) > 1
            else None,
        }
    )


def power_of(deviation: float, items: int, difference: float) -> Power | None:
    """The power of a comparison, where items' differences have this standard deviation; None where it is 0."""
    if deviation == 0:
        return None
    return Power(
        items=items,
        deviation=deviation,
        smallest=smallest_difference(deviation, items),
        difference=difference,
        needed=items_needed(deviation, difference),
    )


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, … up to `most`, and `most`."""
    return sorted({most, *(1 << power for power in range(most.bit_length()))})
