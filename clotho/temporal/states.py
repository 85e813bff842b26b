"""States of workflows, and of their namespace."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1.workflow_pb2 import PENDING_ACTIVITY_STATE_STARTED
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetClusterInfoRequest,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from clotho.errors import Unavailable
from clotho.processes.liveness import ServedNamespace
from clotho.sandbox.backend import Labels
from clotho.sandbox.reaper import OwnerState

VERIFICATION = "verify"
"""Name of the activity that calls an environment's verifier."""

UNTOLD = (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED)
"""Answers of servers that tell their clients no id of the cluster."""

NAMESPACE_TIMEOUT = timedelta(seconds=2)
PAGE = 1_000
"""Workflows in a page of a listing: Temporal's most."""

log = logging.getLogger("clotho")


async def namespace_labels(client: Client, store: str) -> Labels:
    """Labels of sandboxes whose rollouts run in the client's namespace, without the rollout's name.

    The cluster goes by its own id, since processes reach it under several addresses. Raises Unavailable.
    """
    try:
        told = await client.workflow_service.get_cluster_info(GetClusterInfoRequest())
        cluster = told.cluster_id
    except RPCError as error:
        if error.status not in UNTOLD:
            raise Unavailable(f"Temporal doesn't tell its cluster's id: {error.message}") from error
        cluster = ""
    # the address in its place: hosts that name the server differently don't know each other's sandboxes
    cluster = cluster or client.service_client.config.target_host
    return Labels(store=store, cluster=cluster, namespace=client.namespace, rollout="")


def served_namespace(client: Client) -> ServedNamespace:
    """The client's namespace; its id is asked for without a retry, since heartbeats wait for it."""
    request = DescribeNamespaceRequest(namespace=client.namespace)

    async def look_up() -> str | None:
        try:
            found = await client.workflow_service.describe_namespace(request, timeout=NAMESPACE_TIMEOUT)
        except RPCError as error:
            # no warning: the next heartbeat asks again
            log.debug("namespace %s: %s", client.namespace, error.message)
            return None
        return found.namespace_info.id

    return ServedNamespace(client.namespace, look_up)


@contextmanager
def ignore_unknown() -> Iterator[None]:
    """Ignore that Temporal doesn't know a workflow, or that it doesn't run: it has ended, or is deleted."""
    try:
        yield
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


async def describe(
    client: Client, workflow: str, timeout: timedelta | None = None
) -> WorkflowExecutionDescription | None:
    """The last execution of a workflow; None if Temporal doesn't know any."""
    with ignore_unknown():
        return await client.get_workflow_handle(workflow).describe(rpc_timeout=timeout)
    return None


async def is_running(client: Client, workflow: str) -> bool:
    found = await describe(client, workflow)
    return found is not None and found.status is WorkflowExecutionStatus.RUNNING


async def is_ending(client: Client, workflow: str, timeout: timedelta | None = None) -> bool:
    """Whether the last execution of a workflow is cancelled, or over."""
    found = await describe(client, workflow, timeout)
    if found is None or found.status is not WorkflowExecutionStatus.RUNNING:
        return True
    return found.raw_description.workflow_extended_info.cancel_requested


def verifying_seconds(execution: WorkflowExecutionDescription, now: datetime) -> float | None:
    """Seconds since the current attempt at a rollout's verification began; None where none is under way."""
    for step in execution.raw_description.pending_activities:
        if step.activity_type.name == VERIFICATION and step.state == PENDING_ACTIVITY_STATE_STARTED:
            return max(0.0, (now - step.last_started_time.ToDatetime(UTC)).total_seconds())
    return None


async def workflow_ids(client: Client, query: str, limit: int | None = None) -> list[str]:
    """The ids of the workflows that visibility lists, the latest first; at most `limit`, if given."""
    # not the SDK's listing, which makes an object of each workflow's attributes: there may be ten thousand
    size = PAGE if limit is None else min(PAGE, limit)
    request = ListWorkflowExecutionsRequest(namespace=client.namespace, query=query, page_size=size)
    found: list[str] = []
    while True:
        page = await client.workflow_service.list_workflow_executions(request, retry=True)
        found += [each.execution.workflow_id for each in page.executions]
        if not page.next_page_token or (limit is not None and len(found) >= limit):
            return found[:limit]
        request.next_page_token = page.next_page_token


class RolloutOwners:
    """Whether the workflow of a sandbox's rollout is open, for the sandbox reaper."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def state(self, rollout: str) -> OwnerState:
        try:
            found = await describe(self._client, rollout)
        except RPCError as error:
            raise Unavailable(f"Temporal can't describe {rollout}: {error.message}") from error
        if found is None:
            # not CLOSED: a Temporal whose database was lost or made anew must not cost live sandboxes
            return OwnerState.UNKNOWN
        return OwnerState.OPEN if found.status is WorkflowExecutionStatus.RUNNING else OwnerState.CLOSED
