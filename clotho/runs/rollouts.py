"""A run's rollouts in the store: how they ended, and which of their sandboxes were followed by others."""

from collections.abc import Sequence
from itertools import count, zip_longest

from clotho.identifiers.rollout_keys import end_key, lease_key
from clotho.journal import Journal
from clotho.rollouts.lease import Fidelity, LeaseEntry
from clotho.rollouts.rollout import EndEntry


async def read_end(journal: Journal, rollout: str) -> EndEntry | None:
    return await journal.read(end_key(rollout), EndEntry)


async def is_followed(journal: Journal, rollout: str, number: int) -> bool:
    """Whether the rollout's sandbox of lease `number` was lost and followed by another."""
    return await journal.read(lease_key(rollout, number + 1), LeaseEntry) is not None


async def sandbox_losses(
    journal: Journal, rollout: str, remembered: Sequence[Fidelity] = ()
) -> tuple[Fidelity, ...]:
    """How well each sandbox that followed a lost one was made, in their order.

    The journal knows those that an earlier workflow of the rollout had; its workflow remembers where one turned out
    to be less than was journalled.
    """
    recorded: list[Fidelity] = []
    for number in count(1):
        if (entry := await journal.read(lease_key(rollout, number), LeaseEntry)) is None:
            break
        recorded.append(entry.fidelity or Fidelity.EXACT)
    pairs = zip_longest(recorded, remembered, fillvalue=Fidelity.EXACT)
    return tuple(max(pair, key=list(Fidelity).index) for pair in pairs)
