"""Search attributes by which runs, groups and rollouts are found in the Temporal UI, and links to them there."""

from urllib.parse import quote

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

RUN = "ClothoRun"
ENVIRONMENT = "ClothoEnvironment"
OUTCOME = "ClothoOutcome"
REWARD = "ClothoReward"

# Few on purpose: a namespace on an SQL store has room for ten Keywords, and for three of each other type.
SEARCH_ATTRIBUTES = {RUN: "Keyword", ENVIRONMENT: "Keyword", OUTCOME: "Keyword", REWARD: "Double"}
"""Name -> type, as `temporal server start-dev --search-attribute Name=Type` takes them."""

PAUSED = "paused"
"""The OUTCOME of a rollout that waits at a turn's boundary."""
DELEGATING = "delegating"
"""The OUTCOME of a rollout that waits for another one to do a task."""

NOTICE = "GiveNotice"
"""Type of the workflows that send a run's notices."""


def work_of(run: str) -> str:
    """Visibility query for a run's workflows, without those that only send notices."""
    return f"{RUN} = '{run}' AND WorkflowType != '{NOTICE}'"


def identify(run: str, environment: str) -> TypedSearchAttributes:
    """The search attributes that a workflow is started with."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(RUN), run),
            SearchAttributePair(SearchAttributeKey.for_keyword(ENVIRONMENT), environment),
        ]
    )


def run_link(ui: str, namespace: str, run: str) -> str:
    """Link to the list of a run's workflows."""
    query = f'{RUN}="{run}"'
    return f"{ui}/namespaces/{namespace}/workflows?query={quote(query, safe='')}"


def workflow_link(ui: str, namespace: str, workflow: str) -> str:
    return f"{ui}/namespaces/{namespace}/workflows/{quote(workflow, safe='')}"
