"""Search attributes that a running workflow sets."""

from temporalio import workflow
from temporalio.common import SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from clotho.temporal.search_attributes import OUTCOME, REWARD

OUTCOME_KEY = SearchAttributeKey.for_keyword(OUTCOME)
REWARD_KEY = SearchAttributeKey.for_float(REWARD)

INFRASTRUCTURE_FAILURE = "infrastructure_failure"
"""OUTCOME of a rollout or group that ended without a reward."""


def show_outcome(outcome: str) -> None:
    workflow.upsert_search_attributes([OUTCOME_KEY.value_set(outcome)])


def show_no_outcome() -> None:
    workflow.upsert_search_attributes([OUTCOME_KEY.value_unset()])


def show_result(outcome: str, reward: float) -> None:
    workflow.upsert_search_attributes([OUTCOME_KEY.value_set(outcome), REWARD_KEY.value_set(reward)])
