"""What may be killed on the way of groups to the trainer, and when."""

from dataclasses import dataclass
from typing import Literal

from chaos.delivery.stage import ADAPTER, API, TRAINER, WORKER


@dataclass(frozen=True)
class DeliveryFault:
    """SIGKILL to all `parts` at once, which are started again at once."""

    title: str
    parts: tuple[str, ...]

    @property
    def trainer_alone_dies(self) -> bool:
        """Whether the API lives, and knows that the trainer had its batch."""
        return TRAINER in self.parts and API not in self.parts


@dataclass(frozen=True)
class DeliveryPhase:
    """`points` are the fail points at which somebody stands in it, all of them at the same time."""

    title: str
    points: tuple[str, ...]
    trainer: Literal["idle", "asks", "has"] = "idle"
    """Where a trainer is killed: with no batch under way, waiting for one, or when it has read one."""

    @property
    def rules(self) -> str:
        return ",".join(self.points)

    @property
    def names(self) -> tuple[str, ...]:
        """The fail points' own."""
        return tuple(point.partition(":")[0].partition("[")[0] for point in self.points)


FAULTS = {
    "adapter": DeliveryFault("SIGKILL of the adapter", (ADAPTER,)),
    "api": DeliveryFault("SIGKILL of the durable API", (API,)),
    "trainer": DeliveryFault("SIGKILL of the trainer", (TRAINER,)),
    "chain": DeliveryFault("SIGKILL of all three", (ADAPTER, API, TRAINER)),
    "only-worker": DeliveryFault("SIGKILL of the only worker", (WORKER,)),
}


PHASES = {
    "sampling": DeliveryPhase("while groups are sampled", ("turn.asking[*/turn/0001]:pause",)),
    "finished": DeliveryPhase("a group finished, not yet sent", ("delivery.due:pause@3",)),
    "posting": DeliveryPhase("in its POST: on the API's disk, not answered", ("queue.kept:pause@3",)),
    "posted": DeliveryPhase("after its POST, the answer not yet noted", ("delivery.sent:pause@3",)),
    "acknowledged": DeliveryPhase(
        "acknowledged, not yet fetched", ("batch.asking:pause@2", "delivery.acknowledged:pause@3")
    ),
    "popped": DeliveryPhase(
        "a batch taken for the trainer, not answered", ("batch.popped[?*]:pause",), "asks"
    ),
    "taken": DeliveryPhase("a batch read by the trainer, not yet noted", ("batch.taken:pause",), "has"),
    "fetched": DeliveryPhase("a batch noted by the trainer", ("batch.fetched:pause",)),
}
