"""Activities that wait while a run is paused (`clotho/runs/pauses.py`), without holding a worker's slot."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle, Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.guard import activity_guard
from clotho.errors import Unavailable
from clotho.journal import Journal
from clotho.rollouts.campaign import PauseRequest
from clotho.runs.pauses import pause_run, paused_because

LOOK_SECONDS = 1.0
CONCURRENT_REQUESTS = 64
"""Requests to Temporal at the same time, when a run with many rollouts is resumed."""

log = logging.getLogger("clotho")


@dataclass
class Waiting:
    """An activity that stays open until its run is resumed."""

    run: str
    handle: AsyncActivityHandle
    heartbeat_seconds: float
    """Between heartbeats, which show that this process will complete it."""
    next_beat: float


class PauseActivities:
    """Activities of paused runs, completed asynchronously by one task of the process."""

    def __init__(self, journal: Journal, client: Client) -> None:
        self._journal = journal
        self._client = client
        self._waiting: dict[bytes, Waiting] = {}
        self._free = asyncio.Semaphore(CONCURRENT_REQUESTS)

    @activity.defn
    async def await_resume(self, run: str) -> None:
        """Complete when the run isn't paused any more."""
        self._admit(run)
        activity.raise_complete_async()

    @activity.defn
    async def paused_because(self, run: str) -> str | None:
        async with activity_guard(run):
            return await paused_because(self._journal, run)

    @activity.defn
    async def pause(self, request: PauseRequest) -> None:
        """Pause a run on its own request."""
        async with activity_guard(request.run):
            await pause_run(self._journal, request.run, request.reason)

    async def run(self) -> None:
        """Heartbeat and complete the waiting activities until cancelled; then hand them to another process."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                try:
                    await self._look()
                except Unavailable as error:
                    log.warning("whether runs are still paused can't be seen now: %s", error)
        finally:
            leaving = ApplicationError("the worker stops; another one waits instead", type="WorkerStops")
            await self._each(list(self._waiting), lambda waiting: waiting.handle.fail(leaving))

    def _admit(self, run: str) -> None:
        info, now = activity.info(), asyncio.get_running_loop().time()
        assert info.heartbeat_timeout is not None
        heartbeat_seconds = info.heartbeat_timeout.total_seconds() / 3
        handle = self._client.get_async_activity_handle(task_token=info.task_token)
        self._waiting[info.task_token] = Waiting(run, handle, heartbeat_seconds, now + heartbeat_seconds)

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        runs = {waiting.run for waiting in self._waiting.values()}
        paused = {run for run in runs if await paused_because(self._journal, run) is not None}
        resumed = [token for token, waiting in self._waiting.items() if waiting.run not in paused]
        due = [
            token
            for token, waiting in self._waiting.items()
            if waiting.run in paused and now >= waiting.next_beat
        ]
        await self._each(resumed, lambda waiting: waiting.handle.complete())
        await self._each(due, self._beat, leave=False)

    async def _beat(self, waiting: Waiting) -> None:
        waiting.next_beat = asyncio.get_running_loop().time() + waiting.heartbeat_seconds
        await waiting.handle.heartbeat()

    async def _each(
        self, tokens: list[bytes], request: Callable[[Waiting], Awaitable[None]], *, leave: bool = True
    ) -> None:
        """Make a request for each; forget those that Temporal no longer waits for, and all of them if `leave`."""

        async def make(token: bytes) -> None:
            async with self._free:
                try:
                    await request(self._waiting[token])
                    left = leave
                except AsyncActivityCancelledError:
                    left = True
                except RPCError as error:
                    left = error.status is RPCStatusCode.NOT_FOUND
            if left:
                self._waiting.pop(token, None)

        await asyncio.gather(*(make(token) for token in tokens))
