"""Where the Temporal UI shows things."""

from urllib.parse import quote

from clotho.temporal.search_attributes import RUN


def run_link(ui: str, namespace: str, run: str) -> str:
    """Where the Temporal UI lists a run's workflows."""
    query = f'{RUN}="{run}"'
    return f"{ui}/namespaces/{namespace}/workflows?query={quote(query, safe='')}"


def workflow_link(ui: str, namespace: str, workflow: str, run: str | None = None) -> str:
    """Where the Temporal UI shows a workflow."""
    path = f"{ui}/namespaces/{namespace}/workflows/{quote(workflow, safe='')}"
    return f"{path}/{run}/history" if run else path
