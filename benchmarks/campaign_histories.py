"""The histories of a campaign's workflow, over all runs that it continued in."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from clotho.runs.campaigns import CampaignHandle

CLOSED_TASK = (
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
)


@dataclass(frozen=True)
class Histories:
    runs: int
    most_events: int
    most_bytes: int
    all_bytes: int
    tasks: int
    """Workflow tasks."""
    open_seconds: float
    """Time in which the workflow had a task, in a queue or at work."""


async def histories_of(client: Client, handle: CampaignHandle) -> Histories:
    """The histories of the runs that began with a handle's."""
    events, sizes = [], []
    tasks, opened = 0, timedelta()
    run: str | None = handle.first_execution_run_id
    while run is not None:
        one = client.get_workflow_handle(handle.id, run_id=run)
        described = await one.describe()
        events.append(described.history_length)
        sizes.append(described.raw_info.history_size_bytes)
        run, since = None, None
        async for event in one.fetch_history_events():
            now = event.event_time.ToDatetime()
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
                tasks, since = tasks + 1, now
            elif event.event_type in CLOSED_TASK and since is not None:
                opened, since = opened + (now - since), None
            elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                run = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return Histories(
        runs=len(events),
        most_events=max(events),
        most_bytes=max(sizes),
        all_bytes=sum(sizes),
        tasks=tasks,
        open_seconds=opened.total_seconds(),
    )
