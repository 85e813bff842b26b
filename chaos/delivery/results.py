"""The result of a cell of delivery, and its comparison with the undisturbed run."""

from collections import Counter

from chaos.delivery.trainer import Received
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


class DeliveryResult(FrozenModel):
    fault: str
    phase: str
    problem: str | None = None
    """Why there is nothing to count: the phase was never reached, or the run never completed."""
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
    orphans: tuple[str, ...] = ()
    to_reaper: int = 0
    recovery: float | None = None
    """Seconds from the kill until the trainer has the groups that were struck; where it had them, its next."""
    seconds: float = 0.0

    @property
    def missed(self) -> list[str]:
        """The targets that were missed."""
        if self.problem is not None:
            return [self.problem]
        found = {
            f"lost {self.lost}": self.lost,
            f"queued twice {self.queued_twice}": self.queued_twice,
            f"served again {self.served_again}": self.served_again and not self.api_died,
            f"changed {self.changed}": self.changed,
            f"faulty batches {self.faulty}": self.faulty,
            f"orphans {len(self.orphans)}": self.orphans,
            "never went on": self.recovery is None,
        }
        return [text for text, missed in found.items() if missed]

    @property
    def footnotes(self) -> list[str]:
        """The marks behind a cell's time; the matrix's legend explains each."""
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
