"""The watch over runs' budgets: each model process counts its turns, and pauses a run whose budget is met."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from functools import partial

from temporalio.client import Client
from temporalio.service import RPCError

from activities.ttl_cache import TTLCache
from clotho.errors import ClothoError, Unavailable
from clotho.identifiers.ids import group_of
from clotho.identifiers.keys import spending_prefix, tools_key, turn_key
from clotho.journal import Journal
from clotho.rollouts.budget import BudgetEntry, Price, Spending, SpendingPage
from clotho.rollouts.group import ToolManifest
from clotho.rollouts.turn import TurnEntry, TurnRequest
from clotho.runs.budgets import (
    RunLedger,
    calls_spending,
    read_budget,
    rollout_spending,
    sampled_spending,
)
from clotho.runs.campaigns import tell_campaign
from clotho.runs.pauses import pause, reason_for

LOOK_SECONDS = 1.0
IDLE_SECONDS = 600.0
"""Time without a turn after which a run isn't watched any more, until its next turn."""

log = logging.getLogger("clotho")


@dataclass
class WatchedRun:
    """A run with a budget, as one process has seen it."""

    ledger: RunLedger
    rollouts: dict[str, Spending] = field(default_factory=dict)
    """Spending of the rollouts whose turns were sampled here: all of it, since their first turn."""
    unwritten: bool = False
    begun: bool = False
    """Whether the page that an earlier process of this queue has left was read."""
    last_turn: float = 0.0


class BudgetWatch:
    """Counts the turns of this process, named by its `queue`, in pages that the others read."""

    def __init__(self, journal: Journal, client: Client, queue: str) -> None:
        self._journal = journal
        self._client = client
        self._queue = queue
        self._runs: dict[str, WatchedRun] = {}
        self._budgets = TTLCache(partial(read_budget, journal))

    async def price(self, run: str) -> Price | None:
        """The price of the run's model; None where it isn't known."""
        entry = await self._budgets.of(run)
        return entry.price if entry is not None else None

    async def note(self, request: TurnRequest) -> None:
        """Count a journalled turn once, whichever attempts ask; do nothing where the run has no budget."""
        if await self._budgets.of(request.run) is None:
            return
        watched = self._runs.setdefault(request.run, WatchedRun(RunLedger(self._journal, request.run)))
        watched.last_turn = time.monotonic()
        known = watched.rollouts.get(request.rollout, Spending())
        if known.turns > request.turn:
            return
        if known.turns == request.turn:
            spent = known + await self._grown(request)
        else:
            spent = await rollout_spending(self._journal, request.rollout, request.turn + 1)
        watched.rollouts[request.rollout] = spent
        watched.unwritten = True

    async def run(self) -> None:
        """Write pages, and look at the budgets of the runs that turns were sampled for, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for run, watched in list(self._runs.items()):
                if time.monotonic() - watched.last_turn > IDLE_SECONDS and not watched.unwritten:
                    del self._runs[run]
                    continue
                try:
                    await self._look(run, watched)
                except (ClothoError, RPCError) as error:  # the run's own damage stops no other run
                    log.warning("the spending of %s can't be counted now: %s", run, error)

    async def _grown(self, request: TurnRequest) -> Spending:
        """The spending since the turn before: this turn, and the calls of that one."""
        rollout, turn = request.rollout, request.turn
        tools = await self._journal.read(tools_key(group_of(rollout)), ToolManifest)
        spent = sampled_spending(await self._journal.read_required(turn_key(rollout, turn), TurnEntry))
        if turn:
            before = await self._journal.read_required(turn_key(rollout, turn - 1), TurnEntry)
            spent += await calls_spending(self._journal, rollout, turn - 1, before, tools)
        return spent

    async def _write_page(self, prefix: str, watched: WatchedRun) -> None:
        # the page of an earlier process of this queue counts turns that this one has never seen
        if not watched.begun:
            left = await self._journal.latest(prefix, SpendingPage) or SpendingPage(rollouts={})
            grown = {name: spent for name, spent in watched.rollouts.items() if _is_more(spent, left, name)}
            watched.rollouts = {**left.rollouts, **grown}
            watched.begun = True
        # before the write: a turn that is noted meanwhile needs another page
        watched.unwritten = False
        try:
            await self._journal.append(prefix, SpendingPage(rollouts=dict(watched.rollouts)), kept=1)
        except Unavailable:
            watched.unwritten = True
            raise

    async def _look(self, run: str, watched: WatchedRun) -> None:
        if watched.unwritten:
            await self._write_page(f"{spending_prefix(run)}{self._queue}/", watched)
        spent = await watched.ledger.spending(watched.rollouts)
        for rollout in [each for each in watched.rollouts if watched.ledger.is_counted(group_of(each))]:
            del watched.rollouts[rollout]
        entry = await self._budgets.of(run) or BudgetEntry()
        reason = entry.met(spent, time.time())
        if reason is not None and await reason_for(self._journal, run) is None:
            log.warning("%s is paused: %s", run, reason)
            await pause(self._journal, run, reason)
            await tell_campaign(self._client, run)


def _is_more(spent: Spending, left: SpendingPage, rollout: str) -> bool:
    return rollout not in left.rollouts or spent.turns > left.rollouts[rollout].turns
