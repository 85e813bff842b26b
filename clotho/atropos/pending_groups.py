"""The claims that an adapter process still has to bring home, and in whose hands each of them is."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clotho.atropos.items import ClaimedItem
from clotho.atropos.ledger import Claim
from clotho.rollouts.item import Item

LONGEST_PAUSE = 60.0


@dataclass
class PendingGroup:
    """One undelivered claim."""

    item: ClaimedItem
    offered: bool = False
    """Atropos has the item: in a worker, or in its backlog."""
    busy: bool = False
    """Somebody waits for the group, or delivers it."""
    failures: int = 0
    not_before: float = 0.0


class PendingGroups:
    """The undelivered claims, in the order of drawing. All of one event loop."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._pages = {claim.group: PendingGroup(ClaimedItem(claim)) for claim in claims}

    def __len__(self) -> int:
        return len(self._pages)

    def __contains__(self, claim: Claim) -> bool:
        return claim.group in self._pages

    def offer(self, claim: Claim) -> ClaimedItem:
        """The claim's item, now in Atropos' hands."""
        page = self._pages.setdefault(claim.group, PendingGroup(ClaimedItem(claim)))
        page.offered = True
        return page.item

    def waiting(self) -> Claim | None:
        """The first claim that is in nobody's hands."""
        now = time.monotonic()
        for page in self._pages.values():
            if not page.offered and not page.busy and page.not_before <= now:
                return page.item.claim
        return None

    def idle(self) -> list[Claim]:
        """The claims that nobody waits for: whoever did was cancelled, or belonged to an earlier process."""
        now = time.monotonic()
        return [page.item.claim for page in self._pages.values() if not page.busy and page.not_before <= now]

    def all(self) -> list[Claim]:
        return [page.item.claim for page in self._pages.values()]

    def item(self, claim: Claim) -> ClaimedItem:
        return self._pages[claim.group].item

    def is_busy(self, claim: Claim) -> bool:
        return self._pages[claim.group].busy

    @contextmanager
    def hold(self, claim: Claim) -> Iterator[None]:
        """Keep everybody else from it meanwhile."""
        page = self._pages[claim.group]
        page.busy = True
        try:
            yield
        finally:
            page.busy = False

    def put_back(self, claim: Claim) -> int:
        """It came to nothing: offer it again, later each time. Returns how often that was."""
        if (page := self._pages.get(claim.group)) is None:
            return 0
        page.offered = False
        page.failures += 1
        page.not_before = time.monotonic() + min(2.0 ** (page.failures - 1), LONGEST_PAUSE)
        return page.failures

    def find(self, item: Item) -> Claim | None:
        """A claim of an equal item, for a hook that copied its own."""
        return next((page.item.claim for page in self._pages.values() if page.item == item), None)

    def settle(self, group: str) -> None:
        """It is delivered or dropped."""
        self._pages.pop(group, None)
