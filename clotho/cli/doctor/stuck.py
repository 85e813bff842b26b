"""Open workflows that make no headway: steps that fail again and again, or wait in queues that no worker serves."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecution

from clotho.cli.doctor.findings import Finding
from clotho.cli.waiting import is_polled, unserved
from clotho.escaping import truncate_middle
from clotho.rollouts.task_queues import TaskQueues
from clotho.temporal.states import describe

MANY_ATTEMPTS = 5
"""Attempts from which a step counts as stuck: outages of a quarter of a minute aren't worth a finding."""
LOOKED_AT = 500
AT_ONCE = 20
SHOWN = 20
PATIENCE = timedelta(seconds=10)
OPEN = "WorkflowType IN ('Rollout', 'RolloutGroup', 'Campaign') AND ExecutionStatus = 'Running'"


async def stuck(client: Client) -> Sequence[Finding]:
    """Why open runs, groups and rollouts of the namespace are stuck; one finding if none is."""
    listed = client.list_workflows(OPEN, limit=LOOKED_AT, rpc_timeout=PATIENCE)
    workflows = [execution async for execution in listed]
    if not workflows:
        return [Finding("no run is open")]
    found = []
    if missing := await unserved(client, TaskQueues()):
        found.append(
            Finding(f"no worker serves {', '.join(missing)}", "start `clotho dev` or `clotho worker`")
        )
    examination = _Examination(client, set(missing))
    steps = [step for each in await asyncio.gather(*map(examination.of, workflows)) for step in each]
    found += steps[:SHOWN]
    if len(steps) > SHOWN:
        found.append(Finding(f"{len(steps) - SHOWN} further steps are stuck"))
    count = f"the first {LOOKED_AT}" if len(workflows) == LOOKED_AT else str(len(workflows))
    return found or [Finding(f"{count} open runs, groups and rollouts looked at: none is stuck")]


class _Examination:
    def __init__(self, client: Client, unserved: set[str]) -> None:
        self._client = client
        self._served = dict.fromkeys(unserved, True)  # said already
        self._places = asyncio.Semaphore(AT_ONCE)

    async def of(self, workflow: WorkflowExecution) -> list[Finding]:
        """Why one workflow is stuck; nothing if it has ended meanwhile."""
        async with self._places:
            if (described := await describe(self._client, workflow.id, PATIENCE)) is None:
                return []
            pending = described.raw_description
            steps = [await self._step(workflow.id, step) for step in pending.pending_activities]
        found = [finding for finding in steps if finding is not None]
        # Temporal repeats a workflow task that fails for ever: the workflow stays Running, and shows no failure
        attempt = pending.pending_workflow_task.attempt
        if attempt >= MANY_ATTEMPTS:
            fact = f"{workflow.id}: its workflow code fails, attempt {attempt}"
            found.append(Finding(fact, "the workers' logs say why; deploy the code that it began with"))
        return found

    async def _step(self, workflow: str, step: PendingActivityInfo) -> Finding | None:
        name = step.activity_type.name
        if step.attempt >= MANY_ATTEMPTS and step.HasField("last_failure"):
            failure = truncate_middle(" ".join(step.last_failure.message.split()), 400)
            return Finding(
                f"{workflow}: {name}, attempt {step.attempt}: {failure}",
                f"mend that and it goes on by itself; to give up: `clotho cancel {named(workflow)}`",
            )
        queue = step.activity_options.task_queue.name
        waits = step.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        if waits and queue and not await self._is_served(queue):
            return Finding(
                f"{workflow}: {name} waits in {queue}, for which no worker asks",
                "start a worker for it: on that host, if the queue names one",
            )
        return None

    async def _is_served(self, queue: str) -> bool:
        if queue not in self._served:
            kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
            self._served[queue] = await is_polled(self._client, queue, kind)
        return self._served[queue]


def named(workflow: str) -> str:
    """The operator's name for a workflow: a campaign goes by its run."""
    return workflow.removesuffix("/~campaign")
