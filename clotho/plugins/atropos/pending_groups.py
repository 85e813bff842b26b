"""The claims whose groups aren't delivered yet, and which of them are offered, awaited or being sent."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clotho.environment.environment import json_item
from clotho.identifiers.ids import item_name
from clotho.rollouts.item import Item
from clotho.runs.ledger import Claim

LONGEST_PAUSE = 60.0


class ClaimedItem(dict[str, Any]):
    """A dataset item, with its claim, as Atropos gets it."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim.item)
        self.claim = claim


class Items:
    """Draws items, and skips those that the run has drawn before.

    Each was drawn as often as `drawn` says. So a dataset in the same order goes on where it stopped, a shuffled
    one hands out the rest, and one that never repeats itself loses nothing.
    """

    def __init__(self, draw: Callable[[], Awaitable[Any]], drawn: Counter[str]) -> None:
        self._draw = draw
        self._drawn_before = Counter(drawn)

    async def next(self) -> Item | None:
        """Draw the next item. Raises EnvironmentFailed for one that isn't a JSON object."""
        while (drawn := await self._draw()) is not None:
            item = json_item(drawn)
            name = item_name(item)
            if not self._drawn_before[name]:
                return item
            self._drawn_before[name] -= 1
        return None


@dataclass
class PendingGroup:
    """One undelivered claim."""

    item: ClaimedItem
    offered: bool = False
    """Atropos has the item: in a worker, or in its backlog."""
    busy: bool = False
    """A task waits for the group, or delivers it."""
    failures: int = 0
    not_before: float = 0.0


class PendingGroups:
    """The undelivered claims, in the order of drawing; for one event loop."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._pending = {claim.group: PendingGroup(ClaimedItem(claim)) for claim in claims}

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, claim: Claim) -> bool:
        return claim.group in self._pending

    def offer(self, claim: Claim) -> ClaimedItem:
        """The claim's item, marked as offered to Atropos."""
        pending = self._pending.setdefault(claim.group, PendingGroup(ClaimedItem(claim)))
        pending.offered = True
        return pending.item

    def waiting(self) -> Claim | None:
        """The first claim that is neither offered nor busy."""
        now = time.monotonic()
        for pending in self._pending.values():
            # not by `busy` alone: a cancelled worker's item is in Atropos' backlog, and would come twice
            if not pending.offered and not pending.busy and pending.not_before <= now:
                return pending.item.claim
        return None

    def idle(self) -> list[Claim]:
        """The claims without a waiting task: it was cancelled, or belonged to an earlier process."""
        now = time.monotonic()
        return [
            pending.item.claim
            for pending in self._pending.values()
            if not pending.busy and pending.not_before <= now
        ]

    def all(self) -> list[Claim]:
        return [pending.item.claim for pending in self._pending.values()]

    def oldest(self) -> float | None:
        """When the first of the claims was drawn, in seconds since the epoch; None without claims."""
        return min((claim.at for claim in self.all() if claim.at is not None), default=None)

    def item(self, claim: Claim) -> ClaimedItem:
        return self._pending[claim.group].item

    def is_busy(self, claim: Claim) -> bool:
        return self._pending[claim.group].busy

    @contextmanager
    def hold(self, claim: Claim) -> Iterator[None]:
        """Mark the claim as busy."""
        pending = self._pending[claim.group]
        pending.busy = True
        try:
            yield
        finally:
            pending.busy = False

    def put_back(self, claim: Claim) -> int:
        """Offer the group again, after exponential backoff. Returns how often it was put back."""
        if (pending := self._pending.get(claim.group)) is None:
            return 0
        pending.offered = False
        pending.failures += 1
        pending.not_before = time.monotonic() + min(2.0 ** (pending.failures - 1), LONGEST_PAUSE)
        return pending.failures

    def find(self, item: Item) -> Claim | None:
        """A claim of an equal item, for a hook that copied its own."""
        return next((pending.item.claim for pending in self._pending.values() if pending.item == item), None)

    def settle(self, group: str) -> None:
        """Remove a group that is delivered or dropped."""
        self._pending.pop(group, None)
