"""Limits of a key by the minute."""

import pytest

from clotho.models.rates import RateMeter
from clotho.worker_settings import RateLimit


def begun(meter: RateMeter, now: float, most: int = 1_000) -> int:
    """The number of requests that may begin at `now`."""
    return next((number for number in range(most) if meter.take_request(now)), most)


def test_a_key_is_held_to_its_requests_a_minute() -> None:
    share = [1.0]
    meter = RateMeter(RateLimit(requests_per_minute=60), lambda: share[0], now=0.0)
    assert begun(meter, 0.0) == 1, "it may be one of many that begin"
    assert begun(meter, 60.0) == 5
    assert meter.take_request(60.0) == pytest.approx(1.0)
    share[0] = 0.5
    assert begun(meter, 64.0) == 2, "its share of four seconds"
    assert begun(meter, 600.0) == 2, "unused time is no reserve"


def test_a_key_is_held_to_its_tokens_a_minute() -> None:
    meter = RateMeter(RateLimit(tokens_per_minute=6_000), lambda: 1.0, now=0.0)
    assert meter.take_request(60.0) == 0
    meter.settle(0.0, 100)
    assert begun(meter, 60.0) == 4, "of 500 tokens, each taking as many as the last had"
    for _ in range(4):
        meter.settle(100.0, 100)
    assert begun(meter, 61.0) == 1
    meter.settle(100.0, 0)  # it failed
    assert begun(meter, 61.0) == 1
    meter.settle(100.0, 100)
    assert begun(meter, 121.0) == 5


def test_a_request_of_more_tokens_than_it_may_use_at_once_is_paid_off_later() -> None:
    meter = RateMeter(RateLimit(tokens_per_minute=600), lambda: 1.0, now=0.0)
    assert meter.take_request(60.0) == 0
    meter.settle(0.0, 1_000)
    assert meter.take_request(60.0) == pytest.approx(100.0)
    assert begun(meter, 160.5) == 1


def test_a_key_without_limits_waits_for_nothing() -> None:
    assert begun(RateMeter(RateLimit(), lambda: 1.0, now=0.0), 0.0, 50) == 50
