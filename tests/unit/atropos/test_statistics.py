"""Evaluations as numbers."""

import math
import statistics

import pytest

from clotho.atropos.evaluation_statistics import mean_of_items, pass_at, student_quantile


def test_the_interval_is_over_items() -> None:
    """Four rollouts of one item are not four items: more of them don't narrow the interval."""
    assert mean_of_items([[0.0], [1.0]]) == mean_of_items([[0.0] * 4, [1.0] * 4])


def test_few_items_have_the_wider_interval_of_students_t() -> None:
    """Of ten items it is 2.262157 standard errors wide, as tables say, and not the normal one's 1.96."""
    scores = [[0.1 * number, 0.3] for number in range(10)]
    found = mean_of_items(scores)
    deviation = statistics.stdev(statistics.fmean(item) for item in scores)
    assert found.high - found.mean == pytest.approx(2.262157 * deviation / math.sqrt(10))
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


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


def test_one_item_has_no_interval() -> None:
    assert mean_of_items([[0.0, 1.0]]).low == -math.inf


def test_pass_at_k_is_unbiased() -> None:
    """One of four passes: a draw of two holds it in half of the cases."""
    scores = [[1.0, 0.0, 0.0, 0.0], [0.0] * 4]
    assert pass_at(1, scores, 1.0) == pytest.approx(0.125)
    assert pass_at(2, scores, 1.0) == pytest.approx(0.25)
    assert pass_at(4, scores, 1.0) == pytest.approx(0.5)
