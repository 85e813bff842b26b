"""Where the steps of a run are served."""

from datetime import timedelta

from clotho.frozen_model import FrozenModel


class ActivityQueue(FrozenModel):
    """Where a kind of work is served, and how patiently it is waited for."""

    queue: str
    schedule_to_close_timeout: timedelta
    """How long one step may take, outages and all attempts included."""
    heartbeat: timedelta
    """How long a worker may be silent before it counts as dead. Model calls are many: beats cost the server."""

    def on(self, queue: str) -> "ActivityQueue":
        """The same kind of work on another queue."""
        return self.model_copy(update={"queue": queue})


class TaskQueues(FrozenModel):
    """The task queues of a run."""

    workflows: str = "clotho"
    campaigns: str = "clotho-campaigns"
    """Apart from groups and rollouts, since campaigns move on to new versions of the code while these don't."""
    model: ActivityQueue = ActivityQueue(
        queue="clotho-llm", schedule_to_close_timeout=timedelta(hours=12), heartbeat=timedelta(seconds=30)
    )
    environment: ActivityQueue = ActivityQueue(
        queue="clotho-env", schedule_to_close_timeout=timedelta(hours=6), heartbeat=timedelta(seconds=10)
    )
    sandbox: ActivityQueue = ActivityQueue(
        queue="clotho-sandbox", schedule_to_close_timeout=timedelta(hours=6), heartbeat=timedelta(seconds=10)
    )
    verification: ActivityQueue | None = None
    """None: where the rollout's sandbox is."""
