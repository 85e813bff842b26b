"""Task queues of a run's steps."""

from datetime import timedelta

from clotho.frozen_model import FrozenModel


class ActivityQueue(FrozenModel):
    """Task queue and time-outs of one kind of activity."""

    queue: str
    schedule_to_close_timeout: timedelta
    """Time for one step, outages and all attempts included."""
    heartbeat_timeout: timedelta
    """Silence after which a worker counts as dead. Model calls are many, and each heartbeat costs the server."""

    def with_queue(self, queue: str) -> "ActivityQueue":
        """A copy for another queue, with the same time-outs."""
        return self.model_copy(update={"queue": queue})

    def with_patience(self, seconds: float) -> "ActivityQueue":
        """A copy in which `seconds` may pass in silence, at most four times as many as here.

        Each heartbeat is a write of Temporal's: those of many slow turns cost more than the turns themselves.
        """
        longer = min(timedelta(seconds=seconds), 4 * self.heartbeat_timeout)
        return self.model_copy(update={"heartbeat_timeout": max(self.heartbeat_timeout, longer)})


class TaskQueues(FrozenModel):
    workflows: str = "clotho"
    campaigns: str = "clotho-campaigns"
    """Apart from groups and rollouts, since campaigns move on to new versions of the code while these don't."""
    workflow_task_timeout: timedelta = timedelta(seconds=10)
    """Silence after which a process that works on a group or rollout counts as dead; local steps end before."""
    model: ActivityQueue = ActivityQueue(
        queue="clotho-llm",
        schedule_to_close_timeout=timedelta(hours=12),
        # a thousand calls whose heartbeats come every 3 s take a third of a core of Temporal's server
        heartbeat_timeout=timedelta(seconds=30),
    )
    environment: ActivityQueue = ActivityQueue(
        queue="clotho-env",
        schedule_to_close_timeout=timedelta(hours=6),
        heartbeat_timeout=timedelta(seconds=10),
    )
    sandbox: ActivityQueue = ActivityQueue(
        queue="clotho-sandbox",
        schedule_to_close_timeout=timedelta(hours=6),
        heartbeat_timeout=timedelta(seconds=10),
    )
    verification: ActivityQueue | None = None
    """The queue of verifications. None: that of the rollout's sandbox."""

    @property
    def are_an_adapters(self) -> bool:
        """Whether the environment exists in an adapter's process alone, and needs its sandboxes on that host."""
        return self.verification is not None
