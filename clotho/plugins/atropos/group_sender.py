"""Delivery of groups to the trainer's API, and the adapter's registration there.

The sender writes an entry before it sends a group, and another when the API has answered. A process that finds the
first alone can't tell whether the group arrived: it sends it again under the same `group_id`. Clotho's durable API
recognises that id; Atropos' own API then has the group twice.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from clotho import failpoints
from clotho.errors import GroupRejected, Unavailable
from clotho.frozen_model import FrozenModel
from clotho.identifiers.keys import delivered_key, registration_prefix
from clotho.journal import Journal
from clotho.plugins.atropos.metrics import DeliveryMetrics
from clotho.plugins.atropos.trainer_api import Receipt, TrainerApi, wait_seconds
from clotho.runs.ledger import Ledger

MOST_STALE = 8
"""Earlier registrations that are disconnected, if they still count."""

log = logging.getLogger("clotho.plugins.atropos")


class Registration(FrozenModel):
    """The adapter's registration with an API."""

    url: str
    env_id: int
    name: str
    """The environment's name with the number that the API adds."""

    def is_stale_registration_of(self, now: "Registration") -> bool:
        """Whether the API that took `now` still counts this registration of an adapter that is gone.

        Both numbers start over with a restarted API, where this one's id may be another environment's.
        """
        return self.url == now.url and self.env_id < now.env_id and _number(self.name) < _number(now.name)


async def disconnect_stale_registration(
    journal: Journal, api: TrainerApi, run: str, now: Registration
) -> None:
    """Have the API forget the registrations before this one: each would take a share of this environment's."""
    prefix = registration_prefix(run)
    number = await journal.append(prefix, now)
    # several, and again: an adapter that was killed in this function has disconnected none before itself
    earlier = await journal.read_numbered(prefix, range(max(0, number - MOST_STALE), number), Registration)
    for stale in (each for each in earlier if each.is_stale_registration_of(now)):
        await retry_outages(partial(api.disconnect, stale.env_id), "disconnect the adapter before this one")
        log.info("disconnected environment %s, which this adapter was before", stale.env_id)


class GroupSender:
    """Delivers each group once, as far as the API tells, and retries through its outages."""

    def __init__(
        self,
        ledger: Ledger,
        api: TrainerApi,
        current_env: Callable[[], Awaitable[int]],
        settled: Callable[[str], None],
        metrics: DeliveryMetrics | None = None,
    ) -> None:
        self._ledger = ledger
        self._api = api
        self._current_env = current_env
        self._settled = settled
        self._metrics = metrics or DeliveryMetrics()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self.sent_again = 0
        """Groups that an earlier process may have brought to the API already."""

    async def deliver(self, group: str, branch_groups: list[dict[str, Any]]) -> None:
        """Send all branch groups of `group` in one request. Cancelling the caller doesn't stop it."""
        if (task := self._under_way.get(group)) is None:
            task = self._under_way[group] = asyncio.create_task(
                self._deliver(group, branch_groups), name=group
            )
            task.add_done_callback(lambda _: self._under_way.pop(group, None))
        await asyncio.shield(task)

    def has(self, group: str) -> bool:
        """Whether `group` is being sent."""
        return group in self._under_way

    async def drop(self, group: str, reason: str, detail: str) -> None:
        """Note that `group` is never sent."""
        log.warning("%s dropped (%s): %s", group, reason, detail)
        await self._ledger.drop(group, reason, detail)
        self._metrics.count_dropped(reason)
        self._settled(group)

    async def finish(self, seconds: float) -> None:
        """Wait until the groups being sent have arrived."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=seconds)

    async def _deliver(self, group: str, branch_groups: list[dict[str, Any]]) -> None:
        # delivered or dropped by a task, or a process, before this one
        if await self._ledger.delivery(group) is not None:
            return self._settled(group)
        started = time.monotonic()

        async def send() -> Receipt:
            # at every try: a restarted API knows this environment by another number, if at all
            env_id = await self._current_env()
            for branch_group in branch_groups:
                branch_group["env_id"] = env_id
            receipt = await self._api.send(branch_groups)
            # rows that don't fill a group wait in the API for ever
            if receipt.buffered:
                log.error("%s: the API keeps it for a group size that isn't its own", group)
            return receipt

        await failpoints.reach("delivery.due", delivered_key(group))
        again = await retry_outages(lambda: self._ledger.sending(group), f"note the sending of {group}")
        self._metrics.count_sent(again=again)
        if again:
            self.sent_again += 1
            log.warning("%s is sent again: whether it arrived isn't known", group)
        try:
            receipt: Receipt = await retry_outages(send, f"deliver {group}")
        except GroupRejected as rejected:
            return await self.drop(group, rejected.reason, str(rejected))
        rows = sum(len(branch_group["tokens"]) for branch_group in branch_groups)
        self._metrics.count_acknowledged(rows, time.monotonic() - started, duplicate=receipt.duplicate)
        await failpoints.reach("delivery.sent", delivered_key(group))
        await retry_outages(lambda: self._ledger.acknowledge(group), f"note that {group} arrived")
        await failpoints.reach("delivery.acknowledged", delivered_key(group))
        self._settled(group)


async def retry_outages(work: Callable[[], Awaitable[Any]], what: str) -> Any:
    """The result of `work`, retried through outages with exponential backoff."""
    attempt = 0
    while True:
        try:
            return await work()
        except Unavailable as outage:
            # about every 100 s in a long outage
            if attempt % 10 == 0:
                log.warning("waiting to %s: %s", what, outage)
            await asyncio.sleep(wait_seconds(attempt))
            attempt += 1


def _number(name: str) -> int:
    number = name.rpartition("_")[2]
    return int(number) if number.isdecimal() else -1
