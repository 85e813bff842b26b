"""An open run as the adapter has it: what was drawn for it, in whose hands that is, and what it came to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from clotho.atropos.group_sender import Courier, outlasting
from clotho.atropos.items import ClaimedItem, Items
from clotho.atropos.ledger import Claim, Ledger
from clotho.atropos.metrics import Tally
from clotho.atropos.pending_groups import Book
from clotho.atropos.rollouts import Groups
from clotho.atropos.run_lock import Tenure
from clotho.atropos.run_setup import Connections
from clotho.atropos.trainer_api import TrainerApi
from clotho.environment.environment import json_item
from clotho.errors import Unfit
from clotho.models.endpoint import Endpoint
from clotho.rollouts.item import Item
from clotho.rollouts.run import DrawnOrder, RunManifest
from clotho.runs.adapter_runs import open_drawn_run

log = logging.getLogger("clotho.atropos")


@dataclass(frozen=True)
class Durable:
    """One run between opening and the end of the process."""

    connections: Connections
    tenure: Tenure
    manifest: RunManifest
    endpoint: Endpoint
    groups: Groups
    ledger: Ledger
    book: Book
    items: Items
    courier: Courier
    tally: Tally
    delivers: bool
    """Groups go to a trainer; else into a file, and what was drawn before is written again."""
    ready: asyncio.Event
    """Set once the API has said what it takes."""

    async def next_claimed(self, step: int, most_open: int) -> ClaimedItem | None:
        """What is in nobody's hands; else a new item, if not too many are open."""
        claim = self.book.waiting()
        if claim is None:
            if self.delivers and len(self.book) >= most_open:
                return None
            item = await self.items.next()
            if item is None:
                return None
            claim = await self._claim(item, step)
        return self.book.offer(claim)

    async def claim_of(self, item: Any, step: int) -> Claim:
        """The item's claim; one that Atropos didn't get from here is claimed now."""
        if isinstance(item, ClaimedItem):
            return item.claim
        plain = json_item(item)
        found = self.book.find(plain)
        if found is None:
            found = await self._claim(plain, step)
            self.book.offer(found)
        return found

    def is_free(self, claim: Claim) -> bool:
        """Whether nobody waits for the claim's group, or brings it to the API."""
        return claim in self.book and not self.book.is_busy(claim) and not self.courier.has(claim.group)

    async def drop(self, claim: Claim, unfit: Unfit) -> None:
        """Have the claim's group never delivered, and say why."""
        if claim not in self.book:
            return
        self.tally.add_dropped(unfit.reason)
        if not self.delivers:
            log.warning("%s left out (%s): %s", claim.group, unfit.reason, unfit)
            return self.book.settle(claim.group)
        await self.courier.drop(claim.group, unfit.reason, str(unfit))

    async def drop_stale(self, step: int, bound: int | None) -> None:
        """What was drawn more than `bound` of the trainer's steps before `step` is not sampled any further."""
        if bound is None:
            return
        for claim in self.book.all():
            lag = step - claim.step
            if lag > bound and await self.groups.scored(claim) is None:
                await self.groups.cancel(claim)
                await self.drop(claim, Unfit("stale", f"{claim.group}: not sampled within {lag} steps"))

    async def _claim(self, item: Item, step: int) -> Claim:
        claim: Claim = await outlasting(lambda: self.ledger.claim(item, step), "claim an item")
        return claim


async def open_durable(
    connections: Connections,
    tenure: Tenure,
    manifest: RunManifest,
    endpoint: Endpoint,
    order: DrawnOrder,
    *,
    attempts: int,
    draw: Callable[[], Awaitable[Any]],
    api: TrainerApi,
    current_env: Callable[[], Awaitable[int]],
    delivers: bool,
) -> Durable:
    """The run, with what is left of it. Raises InvalidInput where it exists with other settings."""
    journal = connections.journal
    await open_drawn_run(journal, manifest, endpoint, order)
    ledger = Ledger(journal, manifest.run)
    claims = await ledger.load()
    book = Book(await ledger.undelivered(claims) if delivers else claims)
    return Durable(
        connections=connections,
        tenure=tenure,
        manifest=manifest,
        endpoint=endpoint,
        groups=Groups(
            client=connections.client, journal=journal, manifest=manifest, order=order, attempts=attempts
        ),
        ledger=ledger,
        book=book,
        items=Items(draw, ledger.drawn),
        courier=Courier(ledger, api, current_env, book.settle),
        tally=Tally(),
        delivers=delivers,
        ready=asyncio.Event(),
    )
