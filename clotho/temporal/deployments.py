"""Versions of workers, as Temporal keeps them for a deployment: which is current, and which still have work."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType, WorkerDeploymentVersionStatus, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from clotho.errors import Unavailable
from clotho.temporal.states import UNTOLD

POLL_LIFETIME = timedelta(seconds=70)
"""A worker's poll lasts a minute: one that was last seen earlier has ended."""
PATIENCE = timedelta(seconds=10)
"""A busy server takes seconds: it asks the deployment's own workflow."""
KNOWN_SECONDS = 20.0
"""Time in which Temporal learns of workers that have just started."""
LOOK_SECONDS, LONGEST_PAUSE = 0.25, 2.0
TO_CHANGE = timedelta(seconds=30)
NOT_YET = (
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
)
"""Answers about a version that Temporal doesn't know yet, or whose workers lack a queue of the current one yet; and
where a deployment was asked to change too often in a second.

A request that its client gave up waiting for ends as cancelled, not as too late.
"""


@dataclass(frozen=True)
class Deployment:
    """The versions of a deployment, by their build ids."""

    name: str
    current: str | None
    """The version with which new work begins; None: only workers without a build id begin any."""
    versions: Mapping[str, WorkerDeploymentVersionStatus.ValueType]
    """The state of each version, the oldest first."""
    polling: frozenset[str]
    """Versions whose workers ask for workflow tasks."""
    polled_unversioned: bool = False
    """Whether workers without a build id ask for workflow tasks, too."""

    def polling_in(self, *states: WorkerDeploymentVersionStatus.ValueType) -> list[str]:
        """The versions in one of these states whose workers poll."""
        return [
            version for version, state in self.versions.items() if version in self.polling and state in states
        ]


async def described_queue(
    client: Client, queue: str, kind: TaskQueueType.ValueType
) -> DescribeTaskQueueResponse:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    return await client.workflow_service.describe_task_queue(request, timeout=PATIENCE)


def live_pollers(described: DescribeTaskQueueResponse) -> list[PollerInfo]:
    """The workers that ask for tasks of a queue, without those that have ended."""
    earliest = datetime.now(UTC) - POLL_LIFETIME
    return [one for one in described.pollers if one.last_access_time.ToDatetime(UTC) > earliest]


async def read_deployment(client: Client, queue: str, name: str | None = None) -> Deployment | None:
    """The deployment `name`, by default the one to which the workers of a workflow queue belong.

    None where no worker has a build id, or the server knows nothing of deployments. Raises RPCError.
    """
    described = await described_queue(client, queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
    versioned, unversioned = set[tuple[str, str]](), False
    for poller in live_pollers(described):
        options = poller.deployment_options
        if options.worker_versioning_mode == WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED:
            versioned.add((options.deployment_name, options.build_id))
        else:
            unversioned = True
    # A queue has one current version, whose deployment counts beside others of which workers poll.
    serving = described.versioning_info.current_deployment_version.deployment_name
    name = name or serving or min((deployment for deployment, _ in versioned), default=None)
    if name is None:
        return None
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=name)
    try:
        answer = await client.workflow_service.describe_worker_deployment(request, timeout=PATIENCE)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND or error.status in UNTOLD:
            return None
        raise
    info = answer.worker_deployment_info
    # the oldest first: advice names the last one
    summaries = sorted(info.version_summaries, key=lambda one: one.create_time.ToDatetime(UTC))
    return Deployment(
        name,
        info.routing_config.current_deployment_version.build_id or None,
        {one.deployment_version.build_id: one.status for one in summaries},
        frozenset(build_id for deployment, build_id in versioned if deployment == name),
        unversioned,
    )


async def make_current(
    client: Client, queue: str, name: str, build_id: str, seconds: float = KNOWN_SECONDS
) -> str | None:
    """Have new work begin with a version, once its workers poll; returns the version that was current before.

    Raises Unavailable where no worker polls within `seconds`, or Temporal refuses the version for so long.
    """
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace, deployment_name=name, build_id=build_id
    )
    deadline, pause = asyncio.get_running_loop().time() + seconds, LOOK_SECONDS
    while True:
        try:
            deployment = await read_deployment(client, queue, name)
            before, polling = (
                (deployment.current, deployment.polling) if deployment else (None, frozenset[str]())
            )
            if before == build_id:
                return before
            # current without a worker that polls, new work would wait for one that may never come
            if build_id in polling:
                await client.workflow_service.set_worker_deployment_current_version(
                    request, timeout=TO_CHANGE
                )
                return before
            others = f"; workers of {', '.join(sorted(polling))} do" if polling else ""
            refused = (
                f"no worker of build {build_id} of deployment {name} polls at "
                f"{client.service_client.config.target_host}, namespace {client.namespace}{others}"
            )
        except RPCError as error:
            if error.status not in NOT_YET:
                raise
            refused = f"Temporal doesn't make build {build_id} current: {error.message}"
        if asyncio.get_running_loop().time() > deadline:
            raise Unavailable(refused)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
