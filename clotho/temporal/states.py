"""States of workflows."""

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from clotho.errors import Unavailable
from clotho.sandbox.backend import Labels
from clotho.sandbox.reaper import OwnerState


def namespace_labels(client: Client, store: str) -> Labels:
    """Labels of sandboxes whose rollouts run in the client's namespace, without the rollout's name."""
    cluster = client.service_client.config.target_host
    return Labels(store=store, cluster=cluster, namespace=client.namespace, rollout="")


async def is_running(client: Client, workflow: str) -> bool:
    try:
        described = await client.get_workflow_handle(workflow).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return described.status is WorkflowExecutionStatus.RUNNING


class RolloutOwners:
    """Whether the workflow of a sandbox's rollout is open, for the sandbox reaper."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def state(self, rollout: str) -> OwnerState:
        try:
            described = await self._client.get_workflow_handle(rollout).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return OwnerState.UNKNOWN
            raise Unavailable(f"Temporal can't describe {rollout}: {error.message}") from error
        return OwnerState.OPEN if described.status == WorkflowExecutionStatus.RUNNING else OwnerState.CLOSED
