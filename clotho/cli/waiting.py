"""Why a run makes no headway: queues and versions that no worker serves, steps that fail again and again."""

import asyncio

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client
from temporalio.service import RPCError

from clotho.cli.deployment_notices import stopping_notice
from clotho.errors import Unavailable
from clotho.identifiers.ids import campaign_id
from clotho.processes.child import ChildProcess
from clotho.rollouts.task_queues import TaskQueues
from clotho.temporal.deployments import PATIENCE, described_queue, live_pollers
from clotho.temporal.search_attributes import work_of
from clotho.temporal.states import is_running

LOOK_AT = 5
"""Rollouts and groups looked at for what they wait for."""
LOOK_SECONDS = 8.0
START_SECONDS = 60.0
"""Time for workers to start, also on a busy machine."""
PERIOD = 0.1


async def until_served(client: Client, worker: ChildProcess) -> None:
    """Return when `worker` asks for every kind of work; raises Unavailable with its last words if it never does."""
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                if not await unserved(client, TaskQueues()):
                    return
                await asyncio.sleep(PERIOD)
    except TimeoutError:
        why = f"{worker.last_words} [{worker.log}]"
        raise Unavailable(f"the workers don't serve after {START_SECONDS:.0f} s: {why}") from None


async def unserved(client: Client, task_queues: TaskQueues) -> list[str]:
    """The task queues for which no worker asks."""
    workflows, activities = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    kinds = {
        task_queues.workflows: workflows,
        task_queues.campaigns: workflows,
        task_queues.model.queue: activities,
        task_queues.environment.queue: activities,
        task_queues.sandbox.queue: activities,
    }
    served = await asyncio.gather(*(is_polled(client, queue, kind) for queue, kind in kinds.items()))
    return [queue for queue, polled in zip(kinds, served, strict=True) if not polled]


async def is_polled(client: Client, queue: str, kind: TaskQueueType.ValueType) -> bool:
    """Whether a worker asks for tasks of the queue."""
    return bool(live_pollers(await described_queue(client, queue, kind)))


async def stall_reason(client: Client, run: str) -> str | None:
    """Why the run makes no headway, in one line; None if nothing is known to hold it up."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):  # the client itself tries again for ever
            if missing := await unserved(client, TaskQueues()):
                return f"no worker serves {', '.join(missing)}: start `clotho dev` or `clotho worker`"
            return await stopping_notice(client) or await _retried_step(client, run)
    except (RPCError, TimeoutError):
        address = client.service_client.config.target_host
        return f"Temporal doesn't answer at {address}; the run goes on when it does"


async def _retried_step(client: Client, run: str) -> str | None:
    # the campaign apart: among many workflows the listing's limit may leave it out
    query = f"{work_of(run)} AND ExecutionStatus = 'Running' AND WorkflowType != 'Campaign'"
    listed = client.list_workflows(query, limit=LOOK_AT, rpc_timeout=PATIENCE)
    campaign = [campaign_id(run)] if await is_running(client, campaign_id(run)) else []
    for workflow in [*campaign, *[execution.id async for execution in listed]]:
        described = await client.get_workflow_handle(workflow).describe(rpc_timeout=PATIENCE)
        for step in described.raw_description.pending_activities:
            if step.attempt > 1 and step.HasField("last_failure"):
                name = step.activity_type.name
                # Of a traceback its last line says what went wrong; it is shown whole where the rollout ends.
                said = step.last_failure.message.strip().splitlines() or [""]
                return f"{workflow}: {name}, attempt {step.attempt}: {said[-1]}"
    return None
