"""Groups for callers without names of their own: numbered in a sequence, counted anew in each of their lives."""

from clotho.frozen_model import FrozenModel
from clotho.identifiers.hashed import job_key
from clotho.identifiers.run_keys import claims_prefix
from clotho.journal import Journal
from clotho.plugins.orders.messages import ClaimOrder


class Claimed(FrozenModel):
    """A claim took the group whose number the entry has."""

    claim: str


class Claims:
    """Claims on one sequence of a run's groups, in one life of its caller."""

    def __init__(self, journal: Journal, run: str, order: ClaimOrder) -> None:
        self._journal = journal
        self._sequence = job_key(order.key)
        self._prefix = claims_prefix(run, job_key(order.key, order.life))

    async def group_of(self, claim: str) -> str | None:
        """The name of the group that `claim` took, the last of several; None if it took none."""
        keys = sorted(await self._journal.keys(self._prefix), reverse=True)
        entries = await self._journal.read_many(keys, Claimed)
        found = (key for key, entry in zip(keys, entries, strict=True) if entry and entry.claim == claim)
        return next((self._name(int(key.rpartition("/")[2])) for key in found), None)

    async def take(self, claim: str) -> str:
        """The name of the next group of the sequence that nobody took in this life."""
        return self._name(await self._journal.append(self._prefix, Claimed(claim=claim)))

    def _name(self, number: int) -> str:
        return f"{self._sequence}-{number}"
