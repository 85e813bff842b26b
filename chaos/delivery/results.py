"""The result of a cell of delivery, and its comparison with the undisturbed run."""

from collections import Counter
from collections.abc import Mapping

from chaos.delivery.trainer import Received
from chaos.plays import Play
from clotho.frozen_model import FrozenModel


class Delivered(FrozenModel):
    """The batches of a run that the trainer received."""

    batches: tuple[Received, ...]
    queued: int
    """Groups that the API's queue ever held."""

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Ids and digests, as often as they came."""
        return [group for batch in self.batches for group in batch.groups]


class DeliveryResult(Play):
    """It recovers when the trainer has the groups that were struck; where it had them, its next."""

    lost: int = 0
    """Groups that never reached the trainer."""
    queued_twice: int = 0
    served_again: int = 0
    """Groups that the trainer got again though the API's queue held them once: in a batch of an API that died."""
    api_died: bool = False
    died_with: tuple[str, ...] = ()
    """Groups that a trainer had read, and not noted, when it was killed."""
    changed: int = 0
    """Groups with other tokens, masks, scores or logprobs than undisturbed, but for those that are `resumed`."""
    resumed: int = 0
    """Groups that differ and have a turn that was resumed in its middle."""
    faulty: int = 0
    """Batches that the trainer found faults in."""
    to_reaper: int = 0

    @property
    def targets(self) -> Mapping[str, object]:
        return {
            f"lost {self.lost}": self.lost,
            f"queued twice {self.queued_twice}": self.queued_twice,
            f"served again {self.served_again}": self.served_again and not self.api_died,
            f"changed {self.changed}": self.changed,
            f"faulty batches {self.faulty}": self.faulty,
            f"orphans {len(self.orphans)}": self.orphans,
            "never went on": self.recovery is None,
        }

    @property
    def counts(self) -> Mapping[str, int]:
        return {
            "lost": self.lost,
            "queued twice": self.queued_twice,
            "changed": self.changed,
            "faulty batches": self.faulty,
            "orphans": len(self.orphans),
            "served again by an API that was killed": self.served_again,
        }

    @property
    def footnotes(self) -> list[str]:
        notes = [f"³({self.to_reaper})"] if self.to_reaper else []
        notes += [f"⁵({self.served_again})"] if self.served_again else []
        notes += [f"⁶({len(self.died_with)})"] if self.died_with else []
        notes += [f"⁷({self.resumed})"] if self.resumed else []
        return notes


def compare(result: DeliveryResult, run: Delivered, undisturbed: Delivered) -> DeliveryResult:
    expected = dict(undisturbed.groups)
    times = Counter(name for name, _ in run.groups)
    resumed = {name for batch in run.batches for name in batch.resumed}
    changed = {name for name, digest in run.groups if expected.get(name) != digest}
    queued_twice = max(0, run.queued - len(expected))
    counts = {
        "lost": len(expected.keys() - times.keys() - set(result.died_with)),
        "queued_twice": queued_twice,
        "served_again": max(0, times.total() - len(times) - queued_twice),
        "changed": len(changed - resumed),
        "resumed": len(changed & resumed),
        "faulty": sum(bool(batch.faults) for batch in run.batches),
    }
    return result.model_copy(update=counts)
