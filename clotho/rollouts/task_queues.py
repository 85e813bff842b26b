"""Where the steps of a run are served."""

from datetime import timedelta

from clotho.frozen_model import Record


class Station(Record):
    """Where a kind of work is served, and how patiently it is waited for."""

    queue: str
    in_all: timedelta
    """How long one step may take, outages and all attempts included."""
    heartbeat: timedelta
    """How long a worker may be silent before it counts as dead. Model calls are many: beats cost the server."""

    def on(self, queue: str) -> "Station":
        """The same kind of work on another queue."""
        return self.model_copy(update={"queue": queue})


class Stations(Record):
    """The task queues of a run."""

    workflows: str = "clotho"
    campaigns: str = "clotho-campaigns"
    """Apart from groups and rollouts, since campaigns move on to new versions of the code while these don't."""
    model: Station = Station(queue="clotho-llm", in_all=timedelta(hours=12), heartbeat=timedelta(seconds=30))
    environment: Station = Station(
        queue="clotho-env", in_all=timedelta(hours=6), heartbeat=timedelta(seconds=10)
    )
    sandbox: Station = Station(
        queue="clotho-sandbox", in_all=timedelta(hours=6), heartbeat=timedelta(seconds=10)
    )
    verification: Station | None = None
    """None: where the rollout's sandbox is."""
