"""The delivery ledger: items drawn, their groups, and the state of each group's delivery, kept in the store.

A group is open when its item was drawn, finished when it is scored, sending while the API is asked to take it, and
then acknowledged or dropped for good. Every state is an entry of its own; none is ever changed.
"""

import time
from collections import Counter
from dataclasses import dataclass

from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import adapter_group_id, item_name
from clotho.identifiers.keys import (
    adapter_item_key,
    adapter_items_prefix,
    delivered_key,
    scored_key,
    sending_prefix,
)
from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import AdapterItem, Delivery, Item


class Sending(FrozenModel):
    """The API was about to be asked to take a group."""


@dataclass(frozen=True)
class Claim:
    """An item drawn for the run, and the group that rolls it out."""

    number: int
    """The claim's number in the order of drawing: also the item's index in the run."""
    group: str
    item: Item
    step: int
    """The trainer's, when it was drawn."""
    at: float | None = None
    """When it was drawn, in seconds since the epoch; None where a trainer orders groups by name."""


class Ledger:
    """The claims of one run. Raises StoreUnavailable and JournalCorrupt."""

    def __init__(self, journal: Journal, run: str) -> None:
        self._journal = journal
        self._run = run
        self._next = 0
        self.drawn: Counter[str] = Counter()
        """Number of times each item was drawn, by its name."""

    async def load(self) -> list[Claim]:
        """All claims so far, in order."""
        keys = await self._journal.keys(adapter_items_prefix(self._run))
        claims = []
        for key, entry in zip(keys, await self._journal.read_many(keys, AdapterItem), strict=True):
            if entry is not None:
                claims.append(_claim(int(key.rpartition("/")[2]), entry))
        self._next = claims[-1].number + 1 if claims else 0
        self.drawn = Counter(item_name(claim.item) for claim in claims)
        return claims

    async def claim(self, item: Item, step: int) -> Claim:
        """Give `item` its occurrence and its group's id, durably."""
        name = item_name(item)
        while True:
            group = adapter_group_id(self._run, name, self.drawn[name])
            entry = AdapterItem(item=item, group=group, step=step, at=time.time())
            number = self._next
            # write-once: if another draw has this number, it is counted, and the next number is tried
            written = await self._journal.write(adapter_item_key(self._run, number), entry)
            self._next = max(self._next, number + 1)
            self.drawn[item_name(written.item)] += 1
            # Another time than this one's is that of an attempt whose answer was lost.
            if written.model_copy(update={"at": entry.at}) == entry:
                return _claim(number, written)

    async def undelivered(self, claims: list[Claim]) -> list[Claim]:
        entries = await self._journal.read_many([delivered_key(claim.group) for claim in claims], Delivery)
        return [claim for claim, entry in zip(claims, entries, strict=True) if entry is None]

    async def finished(self, claims: list[Claim]) -> list[Claim]:
        """The claims whose groups are scored."""
        entries = await self._journal.read_many([scored_key(claim.group) for claim in claims], GroupEntry)
        return [claim for claim, entry in zip(claims, entries, strict=True) if entry is not None]

    async def delivery(self, group: str) -> Delivery | None:
        return await self._journal.read(delivered_key(group), Delivery)

    async def sending(self, group: str) -> bool:
        """Note an attempt to send; returns whether there was one before, so that the API may have the group."""
        # noted before the API is asked: if its answer is lost, the group may have been taken
        before = await self._journal.keys(sending_prefix(group))
        await self._journal.append(sending_prefix(group), Sending())
        return bool(before)

    async def acknowledge(self, group: str) -> None:
        await self._journal.write(delivered_key(group), Delivery())

    async def drop(self, group: str, reason: str, detail: str) -> None:
        await self._journal.write(delivered_key(group), Delivery(reason=reason, detail=detail))


def _claim(number: int, entry: AdapterItem) -> Claim:
    return Claim(number=number, group=entry.group, item=entry.item, step=entry.step, at=entry.at)
