"""Statistics of evaluations, against values known from tables, by hand, or by enumeration."""

import math
import statistics

import pytest

from clotho.evaluation.statistics import (
    Estimate,
    items_needed,
    mean_difference,
    mean_of_items,
    pass_all,
    pass_at,
    sign_test,
    smallest_difference,
    student_quantile,
)

ONE_OF_FOUR = [[1.0, 0.0, 0.0, 0.0], [0.0] * 4]


def test_the_interval_is_over_items() -> None:
    """Four rollouts of one item are not four items: more of them don't narrow the interval."""
    scores = [0.0, 0.2, 0.4, 0.7, 0.9]
    once = mean_of_items([[score] for score in scores])
    assert once == mean_of_items([[score] * 4 for score in scores])


def test_the_bootstrap_of_many_items_is_the_interval_of_students_t() -> None:
    scores = [[((number * 7_919) % 100) / 100, 0.3] for number in range(50)]
    found = mean_of_items(scores)
    means = [statistics.fmean(item) for item in scores]
    reach = 2.009575 * statistics.stdev(means) / math.sqrt(50)
    assert found.mean == statistics.fmean(means)
    assert (found.low, found.high) == pytest.approx((found.mean - reach, found.mean + reach), abs=reach / 15)
    assert found == mean_of_items(scores)


def test_many_items_are_resampled_in_parts() -> None:
    scores = [[float(number % 5)] for number in range(30_000)]
    found = mean_of_items(scores)
    reach = 1.96 * math.sqrt(2 / 30_000)
    assert (found.low, found.high) == pytest.approx((2 - reach, 2 + reach), abs=reach / 5)


@pytest.mark.parametrize(
    ("degrees", "tabled"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (30, 2.0423), (1000, 1.9623)]
)
def test_quantiles_of_t_are_those_of_the_tables(degrees: int, tabled: float) -> None:
    assert student_quantile(degrees) == pytest.approx(tabled, abs=5e-5)


def test_items_that_pass_or_fail_have_wilsons_interval() -> None:
    """Also where all passed: ten passes of ten don't prove that nothing ever fails."""
    all_passed = mean_of_items([[1.0, 1.0]] * 10)
    assert (all_passed.low, all_passed.high) == pytest.approx((0.722467, 1.0))
    some = mean_of_items([[1.0]] * 3 + [[0.0]] * 7)
    assert (some.mean, some.low, some.high) == pytest.approx((0.3, 0.10779, 0.60322), abs=1e-5)


@pytest.mark.parametrize("scores", [[[0.0, 1.0]], [[0.1], [0.2], [0.3], [0.4]], [[0.5]] * 20])
def test_there_is_no_interval_where_the_items_cant_tell(scores: list[list[float]]) -> None:
    """One item, fewer than five, and items that are all the same."""
    found = mean_of_items(scores)
    assert (found.low, found.high, found.told) == (-math.inf, math.inf, False)


def test_pass_at_k_is_unbiased() -> None:
    """One of four passes: a draw of two holds it in half of the cases."""
    assert [pass_at(k, ONE_OF_FOUR, 1.0).mean for k in (1, 2, 4)] == pytest.approx([0.125, 0.25, 0.5])


def test_pass_to_the_k_is_unbiased() -> None:
    """Three of four pass: three of the six pairs are passes, and the four together aren't."""
    scores = [[1.0, 1.0, 1.0, 0.0], [1.0] * 4]
    assert [pass_all(k, scores, 1.0).mean for k in (1, 2, 4)] == pytest.approx([0.875, 0.75, 0.5])
    assert pass_all(1, ONE_OF_FOUR, 1.0).mean == pass_at(1, ONE_OF_FOUR, 1.0).mean


def test_a_difference_is_paired_by_item() -> None:
    """Items differ much more from one another than the runs do."""
    one = [float(number) for number in range(20)]
    found = mean_difference(one, [value + (0.1 if at % 2 else 0.3) for at, value in enumerate(one)])
    assert found.mean == pytest.approx(0.2)
    assert 0.14 < found.low < 0.16 and 0.24 < found.high < 0.26
    assert mean_difference(one, one) == Estimate(0.0, -math.inf, math.inf)


def test_items_that_pass_now_are_no_share_of_trials() -> None:
    """Differences of 0 and 1 have a mean that may be 0 or less in truth: Wilson's interval would rule that out."""
    found = mean_difference([0.0] * 12, [1.0, *[0.0] * 11])
    assert found.low == 0.0


@pytest.mark.parametrize(
    ("better", "worse", "chance"),
    [(0, 0, 1.0), (1, 1, 1.0), (5, 0, 2 / 32), (8, 1, 20 / 512), (1, 8, 20 / 512), (7, 3, 352 / 1024)],
)
def test_the_sign_test_is_exact(better: int, worse: int, chance: float) -> None:
    """Of nine tosses, at most one comes the other way in (1 + 9) of 512 cases, and so in both directions in 20."""
    assert sign_test(better, worse) == chance


def test_the_sign_test_takes_many_items() -> None:
    """Where it is the normal distribution's, with its correction for whole numbers."""
    assert sign_test(5_100, 4_900) == pytest.approx(math.erfc(199 / 100 / math.sqrt(2)), abs=1e-4)


def test_power_is_that_of_the_textbook() -> None:
    """(1.959964 + 0.841621)² = 7.848879, times the variance, over the squared difference."""
    assert items_needed(1.0, 0.5) == 32
    assert items_needed(0.5, 0.05) == 785
    assert smallest_difference(0.5, 785) == pytest.approx(0.05, abs=1e-4)
