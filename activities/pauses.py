"""Activities of what is paused (`clotho/runs/pauses.py`): a rest holds no worker's slot, and costs nothing.

A rest has no heartbeat: ten thousand of them would send Temporal a thousand a second. The process that has begun
it completes it by the workflow's id, once the store has no pause of it. Where that process has died, any other one
finds the workflow by its search attribute, and does the same.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.guard import activity_guard
from clotho.errors import Unavailable
from clotho.identifiers.ids import run_of
from clotho.journal import Journal
from clotho.rollouts.campaign import PauseRequest
from clotho.runs.pauses import Paused, pause, paused_in, reason_among, reason_for
from clotho.temporal.search_attributes import OUTCOME, PAUSED, RUN

REST = "rest"
"""The id, within its workflow, of the activity that lasts as long as a pause."""
LOOK_SECONDS = 2.0
ORPHANS_SECONDS, MOST_ORPHANS_SECONDS = 20.0, 120.0
"""Between looks for rests whose process has died. One is completed when two looks have found it."""
ORPHANS_SHARE = 0.01
"""Share of time that such looks may take: many groups or rollouts that are paused one by one are all listed."""
ORPHANS_AT_ONCE = 1_000
"""Completed after a look. What others are completing looks like orphans too, until its workflows go on."""
CONCURRENT_REQUESTS = 64
"""Requests to Temporal at the same time, when a run with many rollouts is resumed."""

log = logging.getLogger("clotho")


class PauseActivities:
    """Activities of paused runs; one task of the process completes the rests that it has begun."""

    def __init__(self, journal: Journal, client: Client) -> None:
        self._journal = journal
        self._client = client
        self._resting: defaultdict[str, set[str]] = defaultdict(set)
        """Run -> workflows whose rest this process has begun."""
        self._orphans: set[str] = set()
        """Workflows that rested at the last look although they aren't paused."""
        self._free = asyncio.Semaphore(CONCURRENT_REQUESTS)

    @activity.defn
    async def await_resume(self) -> None:
        """Complete when nothing that the workflow is part of is paused any more."""
        workflow = activity.info().workflow_id
        assert workflow is not None
        self._resting[run_of(workflow)].add(workflow)
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
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._complete_resumed()
                if (began := clock()) >= next_orphans:
                    found = await self._resumed_resting()
                    rare = min((clock() - began) / ORPHANS_SHARE, MOST_ORPHANS_SECONDS)
                    next_orphans = began + max(ORPHANS_SECONDS, rare)
                    await self._complete(islice(self._orphans & found, ORPHANS_AT_ONCE))
                    self._orphans = found
            except (Unavailable, RPCError) as error:
                log.warning("whether runs are still paused can't be seen now: %s", error)

    async def _complete_resumed(self) -> None:
        for run, resting in list(self._resting.items()):
            paused = await paused_in(self._journal, run)
            if run in paused:
                continue
            await self._complete(each for each in list(resting) if reason_among(paused, each) is None)
            if not resting:
                del self._resting[run]

    async def _resumed_resting(self) -> set[str]:
        """The workflows that rest, as visibility lists them, and aren't paused."""
        query, found = f"{OUTCOME} = '{PAUSED}' AND ExecutionStatus = 'Running'", set[str]()
        looked_up: dict[str, Paused] = {}
        held: str | None = ""
        while held is not None:
            held = None
            async for listed in self._client.list_workflows(query):
                run = run_of(listed.id)
                if run not in looked_up:
                    looked_up[run] = await paused_in(self._journal, run)
                if run in looked_up[run]:
                    held = run
                    query += f" AND {RUN} != '{run}'"  # it may have many thousands
                    break
                if reason_among(looked_up[run], listed.id) is None:
                    found.add(listed.id)
        return found

    async def _complete(self, workflows: Iterable[str]) -> None:
        """Complete rests, and forget those that are over; a server that is away is asked at the next look."""

        async def complete(workflow: str) -> None:
            async with self._free:
                handle = self._client.get_async_activity_handle(
                    workflow_id=workflow, run_id=None, activity_id=REST
                )
                try:
                    await handle.complete()
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        return
            self._resting[run_of(workflow)].discard(workflow)

        await asyncio.gather(*map(complete, workflows))
