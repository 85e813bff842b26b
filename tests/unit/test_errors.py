"""The failure policy: complete, documented, and asked when errors are handed to Temporal."""

import importlib
import inspect
import pkgutil
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

import clotho
import clotho.errors
from clotho.errors import (
    ClothoError,
    EnvironmentFailed,
    ModelRejected,
    ModelUnavailable,
    SandboxLost,
    StoreUnavailable,
)
from clotho.failure_policy import (
    CANCELLED,
    DROP_REASONS,
    ENVIRONMENT_ATTEMPTS,
    POLICIES,
    TERMINATED,
    TIMED_OUT,
    UNCLASSIFIED,
    FailurePolicy,
    GroupAction,
    SandboxAction,
    SiblingAction,
    StepAction,
    kind_of,
    policy_for,
)
from clotho.temporal.failures import to_application_error

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
ERRORS = [
    kind for kind in vars(clotho.errors).values() if inspect.isclass(kind) and issubclass(kind, ClothoError)
]


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


TOLD_MORE = ("GroupRejected", "LeaseElsewhere")


@pytest.mark.parametrize("error", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_policy_that_temporal_is_told(error: type[ClothoError]) -> None:
    policy = POLICIES[error.__name__]
    raised = error("no", "there") if error.__name__ in TOLD_MORE else error("no")
    handed = to_application_error(raised, 1)
    assert handed.type == error.__name__
    assert handed.non_retryable is (policy.step is StepAction.FAIL)
    assert policy.dropped_as in DROP_REASONS


def test_the_table_holds_nothing_but_errors_and_what_temporal_itself_ends_work_with() -> None:
    assert {kind.__name__ for kind in ERRORS} | {CANCELLED, TERMINATED, TIMED_OUT} == set(POLICIES)


APART = ("tinker", "verifiers")
"""Packages of trainers: one has an environment of its own."""


def test_errors_of_other_modules_are_treated_as_their_base() -> None:
    for module in pkgutil.walk_packages(clotho.__path__, "clotho."):
        if "__main__" not in module.name and "supervisor" not in module.name:
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as missing:
                assert missing.name in APART, module.name
    elsewhere = [kind for kind in subclasses(ClothoError) if kind not in ERRORS]
    assert elsewhere
    for kind in elsewhere:
        assert kind_of(BaseException.__new__(kind)) in {base.__name__ for base in kind.__mro__[1:]}


def test_a_backends_own_kind_of_loss_is_a_loss() -> None:
    class Evicted(SandboxLost):
        pass

    handed = to_application_error(Evicted("the node was drained"), 1)
    assert policy_for(handed.type or "").sandbox is SandboxAction.RESTORE


def test_what_nothing_is_known_of_is_retried_and_repaired() -> None:
    assert to_application_error(KeyError("x"), 1_000).non_retryable is False
    assert policy_for("KeyError") == UNCLASSIFIED
    assert UNCLASSIFIED.sibling is SiblingAction.REPAIR
    assert UNCLASSIFIED.group is GroupAction.RETRY


def test_only_a_cancel_ends_a_group_for_good() -> None:
    assert [kind for kind, policy in POLICIES.items() if policy.cancels_group] == [CANCELLED]


def test_the_documentation_shows_the_table() -> None:
    assert policy_table() in ARCHITECTURE.read_text()


def policy_table() -> str:
    columns = [field.name for field in fields(FailurePolicy) if field.name not in ("attempts", "dropped_as")]
    lines = [f"| kind | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for kind, policy in {**POLICIES, "any other exception": UNCLASSIFIED}.items():
        cells = [str(getattr(policy, column)) for column in columns]
        if policy.attempts is not None:
            cells[0] += f", {policy.attempts} attempts"
        name = f"`{kind}`" if kind in POLICIES else kind
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def subclasses(kind: type[ClothoError]) -> set[type[ClothoError]]:
    found = {kind}
    for child in kind.__subclasses__():
        found |= subclasses(child)
    return found


def test_pythons_timeout_is_tried_again_like_any_other_exception() -> None:
    """`TimeoutError` in the table is Temporal's: the time for a whole step is over."""
    assert policy_for(kind_of(TimeoutError())) is UNCLASSIFIED
    assert not to_application_error(TimeoutError("a socket's"), attempt=1).non_retryable
