"""Links to the Temporal UI."""

from urllib.parse import quote

from clotho.temporal.search_attributes import RUN


def run_link(ui: str, namespace: str, run: str) -> str:
    """Link to the list of a run's workflows."""
    query = f'{RUN}="{run}"'
    return f"{ui}/namespaces/{namespace}/workflows?query={quote(query, safe='')}"


def workflow_link(ui: str, namespace: str, workflow: str) -> str:
    return f"{ui}/namespaces/{namespace}/workflows/{quote(workflow, safe='')}"
