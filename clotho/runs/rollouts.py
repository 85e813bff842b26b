"""A run's rollouts in the store: how they ended, and which of their sandboxes were followed by others."""

from clotho.entries.rollout import EndEntry, LeaseEntry
from clotho.identifiers import end_key, lease_key
from clotho.journal import Journal


async def read_end(journal: Journal, rollout: str) -> EndEntry | None:
    return await journal.read(end_key(rollout), EndEntry)


async def is_followed(journal: Journal, rollout: str, number: int) -> bool:
    """Whether the rollout's sandbox of lease `number` was lost and followed by another."""
    return await journal.read(lease_key(rollout, number + 1), LeaseEntry) is not None
