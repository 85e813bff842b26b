"""Waiting for conditions, and starting the runs that most tests start."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from clotho.runs.campaigns import CampaignHandle
from tests.cluster import Cluster

PATIENCE_SECONDS = 180.0
"""How long a test waits for what happens at once, before it fails: machines stand still for many seconds."""
SHARED_LEASE = {"lease_seconds": 4 * 3600}
"""Of a sandbox that tests share, longer than all of them take: nobody renews it."""
ONE_FILE = "tests.environments.one_file:OneFile"
TIMED_OUT = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
LOOK_UPS = ("choose model process", "look for the sandbox's host")
Result = TypeVar("Result")


async def start(cluster: Cluster, run: str, model_url: str, **order: Any) -> CampaignHandle:
    """Start a run of the environment whose reward is what the model wrote to /work/score."""
    return await cluster.start(run, model_url, environment=ONE_FILE, **order)


def step_of(event: HistoryEvent) -> str | None:
    """The summary of the step that an event tells of: a scheduled activity, or a local one that has ended."""
    if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED or (
        event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED
        and event.marker_recorded_event_attributes.marker_name == "core_local_activity"
    ):
        return event.user_metadata.summary.data.decode().strip('"')
    return None


async def events_of(cluster: Cluster, workflow: str) -> Sequence[HistoryEvent]:
    return (await cluster.client.get_workflow_handle(workflow).fetch_history()).events


async def reset(client: Client, workflow: str) -> None:
    """Reset a workflow to its first task, as the UI does."""
    history = await client.get_workflow_handle(workflow).fetch_history()
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    first = next(event.event_id for event in history.events if event.event_type == completed)
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow),
            workflow_task_finish_event_id=first,
            request_id=f"{workflow}-reset",
        )
    )


async def version_of(cluster: Cluster, workflow: str) -> str:
    """The build id of the workers that a workflow belongs to."""
    described = await cluster.client.get_workflow_handle(workflow).describe()
    return described.raw_description.workflow_execution_info.versioning_info.deployment_version.build_id


def regular_steps(history: Iterable[HistoryEvent]) -> list[str]:
    """The steps that were regular activities."""
    activities = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    return [step_of(event) or "" for event in history if event.event_type == activities]


def beyond_the_budget(event: HistoryEvent) -> bool:
    """Whether an event tells of a local step that wasn't done in time, as may happen to any on a busy machine."""
    return event.marker_recorded_event_attributes.HasField("failure")


def steps_done(history: Iterable[HistoryEvent]) -> list[str]:
    """The steps of a rollout, each once, however long it took: without look-ups of processes that are silent."""
    done = [step_of(event) for event in history if not beyond_the_budget(event)]
    return list(dict.fromkeys(step for step in done if step is not None and step not in LOOK_UPS))


async def eventually(
    question: Callable[[], Awaitable[Result | None]], what: str, seconds: float = PATIENCE_SECONDS
) -> Result:
    """The first answer that isn't None or False; fails saying `what` was waited for.

    A request to Temporal that timed out is asked again: the worker that a query is for may stand still.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if answer := await question():
                return answer
        except RPCError as error:
            if error.status not in TIMED_OUT:
                raise
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.05)


USUAL_SECONDS = 0.01
"""CPU time of REFERENCE additions on a machine of usual speed."""
REFERENCE = 200_000


def cpu_seconds(work: Callable[[], object], enough: float) -> float:
    """CPU time of `work` in this thread, as a machine of usual speed takes it.

    The least of several measurements, while they aren't below `enough`: machines stand still, and collect garbage.
    """
    took = _thread_seconds(work)
    for _ in range(4):
        if took < enough:
            break
        before, measured, after = _slowness(), _thread_seconds(work), _slowness()
        took = min(took, measured / max(before, after))
    return took


def _thread_seconds(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def _slowness() -> float:
    """How many times slower this machine is now than a usual one; 1 for a faster one."""
    return max(1.0, _thread_seconds(lambda: sum(number for number in range(REFERENCE))) / USUAL_SECONDS)
