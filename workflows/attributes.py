"""The search attributes by which runs, groups and rollouts are found in the Temporal UI."""

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

with workflow.unsafe.imports_passed_through():
    from clotho.search_attributes import ENVIRONMENT, OUTCOME, REWARD, RUN

RUN_KEY = SearchAttributeKey.for_keyword(RUN)
ENVIRONMENT_KEY = SearchAttributeKey.for_keyword(ENVIRONMENT)
OUTCOME_KEY = SearchAttributeKey.for_keyword(OUTCOME)
REWARD_KEY = SearchAttributeKey.for_float(REWARD)

INFRASTRUCTURE_FAILURE = "infrastructure_failure"
"""What OUTCOME shows for a rollout or group that ended without a reward."""
PAUSED = "paused"
"""What OUTCOME shows for a rollout while it waits at a turn boundary."""


def identify(run: str, environment: str) -> TypedSearchAttributes:
    """Set when a workflow starts, and never again."""
    return TypedSearchAttributes(
        [SearchAttributePair(RUN_KEY, run), SearchAttributePair(ENVIRONMENT_KEY, environment)]
    )


def show_outcome(outcome: str) -> None:
    workflow.upsert_search_attributes([OUTCOME_KEY.value_set(outcome)])


def show_no_outcome() -> None:
    workflow.upsert_search_attributes([OUTCOME_KEY.value_unset()])


def show_result(outcome: str, reward: float) -> None:
    workflow.upsert_search_attributes([OUTCOME_KEY.value_set(outcome), REWARD_KEY.value_set(reward)])
