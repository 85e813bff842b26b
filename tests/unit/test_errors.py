"""How errors are handed to Temporal."""

from datetime import timedelta

import pytest

from clotho.errors import (
    ENVIRONMENT_ATTEMPTS,
    EnvironmentFailed,
    ModelRejected,
    ModelUnavailable,
    StoreUnavailable,
    to_application_error,
)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (5, 16), (6, 30), (1_000_000, 30)])
def test_attempts_at_an_outage_come_at_growing_intervals(attempt: int, seconds: int) -> None:
    error = to_application_error(StoreUnavailable("away"), attempt)
    assert (error.non_retryable, error.next_retry_delay) == (False, timedelta(seconds=seconds))


def test_a_provider_says_when_to_come_back() -> None:
    error = to_application_error(ModelUnavailable("busy", retry_after=timedelta(seconds=77)), 3)
    assert error.next_retry_delay == timedelta(seconds=77)


def test_refusals_are_final_and_an_authors_exceptions_are_after_some_attempts() -> None:
    assert to_application_error(ModelRejected("no such model"), 1).non_retryable
    failed = [
        to_application_error(EnvironmentFailed("x"), n + 1).non_retryable for n in range(ENVIRONMENT_ATTEMPTS)
    ]
    assert failed == [False] * (ENVIRONMENT_ATTEMPTS - 1) + [True]
