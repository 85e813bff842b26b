"""Activities of what is paused (`clotho/runs/pauses.py`): a rest holds no worker's slot, and costs nothing.

A rest has no heartbeat: ten thousand of them would send Temporal a thousand a second. The process that has begun
it completes it by the workflow's id, once the store has no pause of it. Where that process has died, any other one
finds the workflow by its search attribute, and does the same.

Rests are completed no faster than their workflows go on. Ten thousand at once kept Temporal from everything else,
and most workflow tasks waited for longer than a worker's own queue keeps them: each then replayed its history.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import islice

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.guard import activity_guard
from clotho import failpoints
from clotho.errors import JournalCorrupt, Unavailable
from clotho.identifiers.ids import run_of
from clotho.journal import Journal
from clotho.rollouts.campaign import PauseRequest
from clotho.runs.pauses import Paused, pause, paused_in, reason_among, reason_for
from clotho.temporal.search_attributes import OUTCOME, PAUSED, RUN

REST = "rest"
"""The id, within its workflow, of the activity that lasts as long as a pause."""
LOOK_SECONDS, STEP_SECONDS = 1.0, 0.5
"""Between looks for what was resumed; the shorter one while workflows go on."""
ORPHANS_SECONDS, MOST_ORPHANS_SECONDS = 20.0, 120.0
"""Between looks for rests whose process has died. One is completed when two looks have found it."""
ORPHANS_SHARE = 0.01
"""Share of time that such looks may take: many groups or rollouts that are paused one by one are all listed."""
SETTLED_SECONDS = 1800.0
"""Time for which the rests of a run aren't listed again while the same parts of it are paused."""
RESTING = f"{OUTCOME} = '{PAUSED}' AND ExecutionStatus = 'Running'"
"""Visibility query for workflows that rest."""

log = logging.getLogger("clotho")


class Pace:
    """A bound on workflows that are about to go on: their rest was completed, and they still show that they rest.

    It follows what Temporal and the workers get done, as TCP follows a network: twice as many while all of them go
    on at once, half as many where one takes long.
    """

    FEWEST, MOST = 16, 256
    SLOW_SECONDS = 1.0
    """Time after which a workflow that doesn't go on shows that workers are behind."""
    LOST_SECONDS = 10.0
    """Time after which a workflow that doesn't go on holds up no other one: it may have no worker."""

    def __init__(self) -> None:
        self._width = self.FEWEST
        self._changed = 0.0
        self.ended: dict[str, float] = {}
        """Workflow about to go on -> the end of its rest."""

    @property
    def free(self) -> int:
        return max(0, self._width - len(self.ended))

    def drop_lost(self, now: float) -> None:
        self.ended = {each: at for each, at in self.ended.items() if now - at < self.LOST_SECONDS}

    def adapt(self, resting: Container[str], now: float) -> None:
        """Note which workflows still show that they rest; the others have gone on."""
        # Those from before the pace was last changed went on at another one, and say nothing of this.
        tried = [at for at in self.ended.values() if at >= self._changed]
        was_full = tried and len(tried) == len(self.ended) and not self.free
        self.ended = {each: at for each, at in self.ended.items() if each in resting}
        if any(at >= self._changed and now - at > self.SLOW_SECONDS for at in self.ended.values()):
            self._width, self._changed = max(self.FEWEST, self._width // 2), now
        elif was_full and len(self.ended) <= self._width // 4:
            self._width, self._changed = min(self.MOST, self._width * 2), now


@dataclass(frozen=True)
class _Listed:
    """A listing of a run's rests that found none to be completed."""

    paused: Paused
    at: float
    again: bool
    """Whether the one before found the same."""

    def holds(self, paused: Paused, now: float) -> bool:
        """Whether another listing would tell nothing new."""
        return self.again and paused == self.paused and now - self.at < SETTLED_SECONDS


class PauseActivities:
    """Activities of paused runs; one task of the process completes the rests that it has begun."""

    def __init__(self, journal: Journal, client: Client) -> None:
        self._journal = journal
        self._client = client
        self._resting: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Run -> workflows whose rest this process has begun, or is to complete for one that died; latest last."""
        self._kept: dict[str, Paused] = {}
        """Run -> what was paused when none of its rests here was to be completed; until another one begins."""
        self._orphans: set[str] = set()
        """Workflows that rested at the last look although they aren't paused."""
        self._listed: dict[str, _Listed] = {}
        """Run -> the last listing of its rests, where it found no orphan."""
        self._pace = Pace()

    @activity.defn
    async def await_resume(self) -> None:
        """Complete when nothing that the workflow is part of is paused any more."""
        workflow = activity.info().workflow_id
        # noted in memory only: where this process dies, `_adopt_orphans` of another one finds the rest
        assert workflow is not None
        self._note(workflow)
        activity.raise_complete_async()

    @activity.defn
    async def reason_for(self, name: str) -> str | None:
        async with activity_guard(name):
            return await reason_for(self._journal, name)

    @activity.defn
    async def pause(self, request: PauseRequest) -> None:
        """Pause a run on its own request."""
        async with activity_guard(request.run):
            await pause(self._journal, request.run, request.reason)

    async def run(self) -> None:
        """Complete rests until cancelled."""
        clock = asyncio.get_running_loop().time
        next_orphans = clock()
        while True:
            await asyncio.sleep(STEP_SECONDS if self._pace.ended else LOOK_SECONDS)
            try:
                if (began := clock()) >= next_orphans:
                    await self._adopt_orphans()
                    rare = min((clock() - began) / ORPHANS_SHARE, MOST_ORPHANS_SECONDS)
                    next_orphans = began + max(ORPHANS_SECONDS, rare)
                self._pace.drop_lost(clock())
                self._pace.adapt(await self._still_resting(self._pace.ended), clock())
                await self._complete(islice(await self._resumed(), self._pace.free))
            except (Unavailable, RPCError) as error:
                log.warning("whether runs are still paused can't be seen now: %s", error)

    async def _resumed(self) -> Iterable[str]:
        """Workflows whose rest is to be completed, the latest first: workers that keep few in memory have those."""
        found: list[str] = []
        for run, resting in list(self._resting.items()):
            if not resting:
                del self._resting[run]
                self._kept.pop(run, None)
                continue
            paused = await self._paused_in(run)
            if run in paused or paused == self._kept.get(run):
                continue
            if ended := [each for each in reversed(resting) if reason_among(paused, each) is None]:
                found += ended
            else:
                self._kept[run] = paused
        return found

    def _note(self, workflow: str) -> None:
        """Note that the rest of `workflow` is this process's to complete."""
        run = run_of(workflow)
        self._resting[run].setdefault(workflow)
        self._kept.pop(run, None)

    async def _paused_in(self, run: str) -> Paused:
        """Read what is paused in `run`. A damaged log counts as no pause: turns go on, and fail for it."""
        try:
            return await paused_in(self._journal, run)
        except JournalCorrupt as error:
            log.error("%s", error)
            return {}

    async def _still_resting(self, workflows: Iterable[str]) -> set[str]:
        """Those of `workflows` that rest, as visibility lists them."""
        if not (named := ", ".join(f"'{each}'" for each in workflows)):
            return set()
        listed = self._client.list_workflows(f"{RESTING} AND WorkflowId IN ({named})")
        return {each.id async for each in listed}

    async def _adopt_orphans(self) -> None:
        """Take over the rests that two looks have found although nothing of them is paused."""
        found = await self._resumed_resting()
        for workflow in self._orphans & found:
            self._note(workflow)
        self._orphans = found

    async def _resumed_resting(self) -> set[str]:
        """The workflows that rest, as visibility lists them, and aren't paused.

        Many thousands may rest. Those of a run are listed when what is paused in it has changed, and once more: one
        may have begun to rest meanwhile.
        """
        found, looked_at, listed = set[str](), "", dict[str, _Listed]()
        now = asyncio.get_running_loop().time()
        while (first := await self._first(f"{RESTING}{looked_at}")) is not None:
            run = run_of(first)
            looked_at += f" AND {RUN} != '{run}'"
            if run in (paused := await self._paused_in(run)):
                continue
            before = self._listed.get(run)
            if before is not None and before.holds(paused, now):
                listed[run] = before
                continue
            of_run = self._client.list_workflows(f"{RESTING} AND {RUN} = '{run}'")
            if orphans := {each.id async for each in of_run if reason_among(paused, each.id) is None}:
                found |= orphans
            else:
                listed[run] = _Listed(paused, now, again=before is not None and before.paused == paused)
        self._listed = listed
        return found

    async def _first(self, query: str) -> str | None:
        async for listed in self._client.list_workflows(query, page_size=1):
            return listed.id
        return None

    async def _complete(self, workflows: Iterable[str]) -> None:
        """Complete rests, and forget those that are over; a server that is away is asked at the next look."""
        clock = asyncio.get_running_loop().time

        async def complete(workflow: str) -> None:
            resting = self._resting[run_of(workflow)]
            del resting[workflow]  # before it goes on: it may rest here again, once it was told to
            handle = self._client.get_async_activity_handle(
                workflow_id=workflow, run_id=None, activity_id=REST
            )
            try:
                await failpoints.reach("rest.ending", workflow)
                await handle.complete()
                self._pace.ended[workflow] = clock()
            except RPCError as error:
                # not found: another process has completed the rest, or the workflow has closed
                if error.status is not RPCStatusCode.NOT_FOUND:
                    resting[workflow] = None

        await asyncio.gather(*map(complete, workflows))
