"""An open run as the adapter has it: what was drawn for it, in whose hands that is, and what it came to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from clotho.atropos.group_sender import GroupSender, retry_outages
from clotho.atropos.items import ClaimedItem, Items
from clotho.atropos.ledger import Claim, Ledger
from clotho.atropos.metrics import Tally
from clotho.atropos.pending_groups import PendingGroups
from clotho.atropos.rollouts import Groups
from clotho.atropos.run_lock import RunLock
from clotho.atropos.run_setup import Connections
from clotho.atropos.trainer_api import TrainerApi
from clotho.environment.environment import json_item
from clotho.errors import GroupRejected
from clotho.models.endpoint import Endpoint
from clotho.rollouts.item import Item
from clotho.rollouts.run import AdapterRunConfig, RunManifest
from clotho.runs.adapter_runs import open_adapter_run

log = logging.getLogger("clotho.atropos")


@dataclass(frozen=True)
class AdapterRun:
    """One run between opening and the end of the process."""

    connections: Connections
    run_lock: RunLock
    manifest: RunManifest
    endpoint: Endpoint
    groups: Groups
    ledger: Ledger
    book: PendingGroups
    items: Items
    courier: GroupSender
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

    async def drop(self, claim: Claim, unfit: GroupRejected) -> None:
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
                await self.drop(
                    claim, GroupRejected("stale", f"{claim.group}: not sampled within {lag} steps")
                )

    async def _claim(self, item: Item, step: int) -> Claim:
        claim: Claim = await retry_outages(lambda: self.ledger.claim(item, step), "claim an item")
        return claim


async def open_durable(
    connections: Connections,
    run_lock: RunLock,
    manifest: RunManifest,
    endpoint: Endpoint,
    order: AdapterRunConfig,
    *,
    attempts: int,
    draw: Callable[[], Awaitable[Any]],
    api: TrainerApi,
    current_env: Callable[[], Awaitable[int]],
    delivers: bool,
) -> AdapterRun:
    """The run, with what is left of it. Raises InvalidInput where it exists with other settings."""
    journal = connections.journal
    await open_adapter_run(journal, manifest, endpoint, order)
    ledger = Ledger(journal, manifest.run)
    claims = await ledger.load()
    book = PendingGroups(await ledger.undelivered(claims) if delivers else claims)
    return AdapterRun(
        connections=connections,
        run_lock=run_lock,
        manifest=manifest,
        endpoint=endpoint,
        groups=Groups(
            client=connections.client, journal=journal, manifest=manifest, order=order, attempts=attempts
        ),
        ledger=ledger,
        book=book,
        items=Items(draw, ledger.drawn),
        courier=GroupSender(ledger, api, current_env, book.settle),
        tally=Tally(),
        delivers=delivers,
        ready=asyncio.Event(),
    )
