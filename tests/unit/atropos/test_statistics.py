"""Evaluations as numbers."""

import math

import pytest

from clotho.atropos.statistics import mean_of_items, pass_at


def test_the_interval_is_over_items() -> None:
    """Four rollouts of one item are not four items: more of them don't narrow the interval."""
    few, many = mean_of_items([[0.0], [1.0]]), mean_of_items([[0.0] * 4, [1.0] * 4])
    assert few == many
    assert few.mean == 0.5
    assert few.high - few.mean == pytest.approx(1.959964 * math.sqrt(0.5) / math.sqrt(2))


def test_one_item_has_no_interval() -> None:
    assert mean_of_items([[0.0, 1.0]]).low == -math.inf


def test_pass_at_k_is_unbiased() -> None:
    """One of four passes: a draw of two holds it in half of the cases."""
    scores = [[1.0, 0.0, 0.0, 0.0], [0.0] * 4]
    assert pass_at(1, scores, 1.0) == pytest.approx(0.125)
    assert pass_at(2, scores, 1.0) == pytest.approx(0.25)
    assert pass_at(4, scores, 1.0) == pytest.approx(0.5)
