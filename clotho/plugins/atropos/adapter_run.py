"""An open run in the adapter: its claims, which of them are pending, and their delivery."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from temporalio.service import RPCError

from clotho.environment.environment import json_item
from clotho.errors import GroupRejected, JournalCorrupt, Rejection
from clotho.models.endpoint import Endpoint
from clotho.plugins.atropos.group_sender import GroupSender, retry_outages
from clotho.plugins.atropos.main import with_own_flags
from clotho.plugins.atropos.metrics import Tally
from clotho.plugins.atropos.pending_groups import ClaimedItem, Items, PendingGroups
from clotho.plugins.atropos.run_lock import RunLock
from clotho.plugins.atropos.run_setup import Connections
from clotho.plugins.atropos.scored import BranchGroup
from clotho.plugins.atropos.trainer_api import TrainerApi
from clotho.rollouts.item import Item
from clotho.rollouts.run import AdapterRunConfig, RunManifest
from clotho.runs.adapter_runs import open_adapter_run
from clotho.runs.group_workflows import Groups
from clotho.runs.ledger import Claim, Ledger
from clotho.training.siblings import Sibling, read_siblings

SHOWN_SECONDS = 1.0

log = logging.getLogger("clotho.plugins.atropos")


@dataclass(frozen=True)
class AdapterRun:
    """One run between opening and the end of the process."""

    connections: Connections
    run_lock: RunLock
    manifest: RunManifest
    endpoint: Endpoint
    groups: Groups
    ledger: Ledger
    pending: PendingGroups
    items: Items
    sender: GroupSender
    tally: Tally
    delivers: bool
    """Groups go to a trainer; else into a file, and what was drawn before is written again."""
    ready: asyncio.Event
    """Set once the API has said what it takes."""

    async def next_claimed(self, step: int, most_open: int) -> ClaimedItem | None:
        """The next pending item that Atropos hasn't got, else a new one if fewer than `most_open` are pending."""
        claim = self.pending.waiting()
        if claim is None:
            # without delivery no group leaves `pending`: the bound would end `process`
            if self.delivers and len(self.pending) >= most_open:
                return None
            item = await self.items.next()
            if item is None:
                return None
            claim = await self._claim(item, step)
        return self.pending.offer(claim)

    async def claim_of(self, item: Any, step: int) -> Claim:
        """The item's claim; an item that wasn't drawn here is claimed now."""
        if isinstance(item, ClaimedItem):
            return item.claim
        plain = json_item(item)
        found = self.pending.find(plain)
        if found is None:
            found = await self._claim(plain, step)
            self.pending.offer(found)
        return found

    async def collect(
        self, claim: Claim, convert: Callable[[tuple[Sibling, ...]], Awaitable[tuple[BranchGroup, ...]]]
    ) -> tuple[BranchGroup, ...] | None:
        """The claim's group once it is scored, converted; None once it is dropped."""
        try:
            entry = await self.groups.until_scored(
                claim, lambda reason: log.warning("%s: %s", claim.group, with_own_flags(reason))
            )
            siblings = await read_siblings(self.groups.journal, entry)
            branch_groups = await convert(siblings)
        except GroupRejected as rejected:
            await self.drop(claim, rejected)
        # read again, it is the same: kept, the group would be tried for ever
        except JournalCorrupt as corrupt:
            await self.drop(claim, GroupRejected(Rejection.CORRUPT, str(corrupt)))
        else:
            self.tally.add(entry, siblings)
            return branch_groups
        return None

    def is_free(self, claim: Claim) -> bool:
        """Whether the claim's group is pending, and neither awaited nor being sent."""
        return claim in self.pending and not self.pending.is_busy(claim) and not self.sender.has(claim.group)

    async def drop(self, claim: Claim, rejected: GroupRejected) -> None:
        """Never deliver the claim's group; the reason is logged and kept."""
        if claim not in self.pending:
            return
        self.tally.add_dropped(rejected.reason)
        if not self.delivers:
            log.warning("%s left out (%s): %s", claim.group, rejected.reason, rejected)
            return self.pending.settle(claim.group)
        await self.sender.drop(claim.group, rejected.reason, str(rejected))

    async def show_undelivered(self) -> None:
        """Show the undelivered groups and their age as metrics until cancelled, also while the API is down."""
        while True:
            self.connections.deliveries.show_undelivered(len(self.pending), self.pending.oldest())
            await asyncio.sleep(SHOWN_SECONDS)

    async def drop_stale(self, step: int, bound: int | None) -> None:
        """Cancel and drop unfinished groups drawn more than `bound` trainer steps before `step`."""
        if bound is None:
            return
        for claim in self.pending.all():
            lag = step - claim.step
            # a scored group is judged by the versions of its weights when it is converted
            if lag > bound and await self.groups.scored(claim) is None:
                try:
                    await self.groups.cancel(claim)
                except RPCError as outage:
                    # it stays, and is cancelled at a later step: dropped now, it would go on for nobody
                    log.warning("%s not cancelled: %s", claim.group, outage.message)
                    continue
                await self.drop(
                    claim, GroupRejected(Rejection.STALE, f"{claim.group}: not sampled within {lag} steps")
                )

    async def _claim(self, item: Item, step: int) -> Claim:
        claim: Claim = await retry_outages(lambda: self.ledger.claim(item, step), "claim an item")
        return claim


async def open_run(
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
    """Open the run and load its pending groups. Raises InvalidInput if it exists with other settings."""
    journal = connections.journal
    await open_adapter_run(journal, manifest, endpoint, order)
    ledger = Ledger(journal, manifest.run)
    claims = await ledger.load()
    pending = PendingGroups(await ledger.undelivered(claims) if delivers else claims)
    return AdapterRun(
        connections=connections,
        run_lock=run_lock,
        manifest=manifest,
        endpoint=endpoint,
        groups=Groups(
            client=connections.client,
            journal=journal,
            manifest=manifest,
            order=order,
            attempts=attempts,
            waits_for_settings=delivers,
        ),
        ledger=ledger,
        pending=pending,
        items=Items(draw, ledger.drawn),
        sender=GroupSender(ledger, api, current_env, pending.settle, connections.deliveries),
        tally=Tally(),
        delivers=delivers,
        ready=asyncio.Event(),
    )
