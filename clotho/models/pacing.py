"""The pace at which all model processes together ask each model server.

While requests wait, a process writes a page for each server every second and reads those of the others
(`clotho/models/pace_pages.py`). The first of them by name adjusts the width (`clotho/models/width.py`); each takes
its share. Permits are held in memory: those of a killed process are free when its page hasn't changed for a while.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from clotho.errors import ClothoError, ModelUnavailable, StoreUnavailable
from clotho.identifiers.ids import run_of
from clotho.journal import Journal
from clotho.models.backend import SampledTurn
from clotho.models.endpoint import Endpoint
from clotho.models.gate import STOPPING, Gate, Room
from clotho.models.pace_pages import PacePages, ServerPage, shown_pages
from clotho.models.paced_server import PacedServer
from clotho.models.rates import RateMeter
from clotho.models.server_load import ServerLoad, server_load
from clotho.models.width import FIRST_WIDTH, LEAST_BY_HINTS, adjusted
from clotho.processes.load import ProcessLoad
from clotho.worker_settings import RateLimit

LOOK_SECONDS, CALM_LOOK_SECONDS = 1.0, 5.0
"""Between two looks, and between those at a server for which no request waits."""
IDLE_SECONDS = 60.0
"""Time without a request after which a process writes no page of a server."""
# a server that has none, or takes longer than METRICS_TIMEOUT, is asked again after NO_METRICS_SECONDS
METRICS_SECONDS, METRICS_TIMEOUT, NO_METRICS_SECONDS = 5.0, 2.0, 300.0
MOST_METRICS_BYTES = 1 << 20

log = logging.getLogger("clotho")

ReadMetrics = Callable[[Endpoint], Awaitable[bytes | None]]
"""Reads a server's /metrics; None where it has none."""


class Pacer:
    """The permits of this process, named `process`, for all model servers.

    `limits` maps the environment variable of a key to its limits; `most_calls` bounds the requests to all servers.
    While this process is behind, by its `load`, no rollout makes its first request.
    """

    def __init__(
        self,
        journal: Journal,
        process: str,
        limits: Mapping[str, RateLimit],
        metrics: ReadMetrics,
        most_calls: int,
        load: ProcessLoad,
    ) -> None:
        self._room = Room(most_calls, load)
        self._journal = journal
        self._process = process
        self._metrics = metrics
        self._limits = limits
        self._meters: dict[str | None, RateMeter] = {}
        self._servers: dict[tuple[str, str | None], PacedServer] = {}
        self._stopped = False

    def choose(self, endpoint: Endpoint, rollout: str, attempt: int) -> Endpoint:
        """The rollout's server, leaving out those that are down; the next one at every further attempt."""
        now = asyncio.get_running_loop().time()
        return endpoint.server_for(rollout, attempt, lambda server: self._takes_new(server, now))

    def quick_share(self, endpoint: Endpoint, rollout: str) -> float:
        """Share of this process's answers from the rollout's server that were quick of late; 0 without any."""
        paced = self._servers.get(_key(self.choose(endpoint, rollout, 1)))
        return 0.0 if paced is None else paced.gate.quick

    def likely_seconds(self, endpoint: Endpoint, rollout: str) -> float:
        """Mean time of this process's answers from the rollout's server of late; 0 without any."""
        paced = self._servers.get(_key(self.choose(endpoint, rollout, 1)))
        return 0.0 if paced is None else paced.gate.seconds

    @asynccontextmanager
    async def permit(
        self,
        endpoint: Endpoint,
        rollout: str,
        attempt: int,
        priority: int | None = None,
        *,
        begun: bool = False,
    ) -> AsyncIterator["Permit"]:
        """Wait for a permit for one of the endpoint's servers, hold it, and learn from how the request ends.

        Runs share what a server takes, by their `priority`: from 1, which comes first, to 5; None is 3. Within a
        run, rollouts that have `begun` come first.

        Raises ModelUnavailable when this process stops.
        """
        server, paced = await self._admitted(endpoint, rollout, attempt, priority, begun)
        meter, width, taken = self._meter(server), paced.width, 0.0
        permit = Permit(server)
        try:
            if meter is not None:
                paced.gate.rated += 1
                try:
                    taken = await meter.wait()
                finally:
                    paced.gate.rated -= 1
            # as it is now, when the request is sent
            width = paced.width
            yield permit
        except ModelUnavailable as error:
            if error.throttled:
                # What was sent before the width changed says nothing about the new one.
                paced.meter.refused += width.changes == paced.width.changes
                paced.gate.refuse(error.retry_after.total_seconds() if error.retry_after else None)
            # a request that this process sends away because it stops says nothing about the server
            elif not self._stopped:
                paced.gate.fail()
            raise
        finally:
            paced.gate.release()
            if meter is not None:
                # a request that failed counts no tokens: it gives back those that it took
                meter.settle(taken, permit.prompt_tokens + permit.sampled_tokens)
        paced.gate.answer(permit.seconds)
        paced.meter.add(permit.seconds, permit.sampled_tokens)

    async def run(self) -> None:
        """Write and read pages until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = asyncio.get_running_loop().time()
            for paced in list(self._servers.values()):
                # forgotten: pages read so long ago say nothing when the next request comes, which then looks first
                if now - paced.gate.used_at >= IDLE_SECONDS and not paced.gate.in_use:
                    paced.looked = None
                elif paced.is_busy(now) or now - (paced.looked or now) >= CALM_LOOK_SECONDS:
                    async with paced.looking:
                        await self._look(paced)

    def stop(self) -> None:
        """Send requests that wait to other processes."""
        self._stopped = True
        for paced in self._servers.values():
            paced.gate.stop()
        for meter in self._meters.values():
            meter.stop()

    async def _admitted(
        self, endpoint: Endpoint, rollout: str, attempt: int, priority: int | None, begun: bool
    ) -> tuple[Endpoint, PacedServer]:
        """A server with a permit; another one if it went down while the request waited."""
        while True:
            if self._stopped:
                raise ModelUnavailable(STOPPING)
            server = self.choose(endpoint, rollout, attempt)
            paced = await self._paced(server)
            await paced.gate.acquire(run_of(rollout), priority, begun=begun)
            # it may have waited for minutes; where all are down, `choose` returns this one again: then it is asked
            is_down = paced.gate.is_down(asyncio.get_running_loop().time())
            if not is_down or self.choose(endpoint, rollout, attempt) == server:
                return server, paced
            paced.gate.release()

    async def _paced(self, server: Endpoint) -> PacedServer:
        """The server, whose pages were looked at a moment ago."""
        if (paced := self._servers.get(_key(server))) is None:
            pages = PacePages(self._journal, server, self._process)
            paced = PacedServer(server, pages, Gate(FIRST_WIDTH, self._room))
            self._servers[_key(server)] = paced
        if paced.looked is None:
            async with paced.looking:
                # of the requests that waited for the lock, the first has looked for all
                if paced.looked is None:
                    await self._look(paced)
        return paced

    async def _look(self, paced: PacedServer) -> None:
        """Exchange pages, and take a share of the width; while the store is away, keep the last share."""
        now = asyncio.get_running_loop().time()
        try:
            await paced.pages.read(now)
            self._adjust(paced, now)
            await paced.pages.write(paced.page(now))
        except StoreUnavailable as error:
            if not paced.alone:
                log.warning("the pace of %s is not shared now: %s", paced.server.base_url, error)
            paced.alone = True
        else:
            paced.alone = False
        # after an outage of the store, too: else every request would wait for it anew
        paced.looked = now
        paced.gate.admit()

    def _adjust(self, paced: PacedServer, now: float) -> None:
        paced.width = max(paced.width, paced.pages.width, key=lambda width: width.changes)
        seen = paced.signals(self._process, now)
        # the first by name alone: of two widths with equally many changes none would count
        # '~' comes after all names: a process without others is the first
        if self._process < min(paced.pages.alive(now), default="~"):
            self._ask_load(paced, seen.in_use, now)
            paced.width = adjusted(paced.width, seen, time.time())
        # requests in flight at the change were sent at the width before: their answers don't count
        paced.meter.begin(paced.width.changes, paced.gate.asking if paced.width.settles else 0)
        paced.gate.limit = paced.granted(self._process, now)[self._process]

    def _ask_load(self, paced: PacedServer, in_use: int, now: float) -> None:
        """Begin to read /metrics of a server that is asked much, if it is time."""
        if in_use < LEAST_BY_HINTS:
            paced.load = ServerLoad()  # what it said earlier no longer holds
        elif now >= paced.load_due:
            paced.load_due = now + METRICS_SECONDS
            # not awaited, so that no look waits for a server; kept, since the event loop alone would let it go
            paced.reading = asyncio.create_task(self._read_load(paced, now))

    async def _read_load(self, paced: PacedServer, now: float) -> None:
        """Read the server's /metrics; whatever it answers, or doesn't, is no error."""
        try:
            async with asyncio.timeout(METRICS_TIMEOUT):
                text = await self._metrics(paced.server)
        except (ClothoError, TimeoutError):
            text = None
        if text is None:
            paced.load_due = now + NO_METRICS_SECONDS
        paced.load = server_load((text or b"")[:MOST_METRICS_BYTES].decode(errors="replace"))

    def _takes_new(self, server: Endpoint, now: float) -> bool:
        if (paced := self._servers.get(_key(server))) is None:
            return True
        return paced.gate.takes_new(now) and not any(page.down for page in paced.pages.alive(now).values())

    def _meter(self, server: Endpoint) -> RateMeter | None:
        name = server.api_key_variable
        if (limit := self._limits.get(name or "")) is None:
            return None
        if name not in self._meters:
            now = asyncio.get_running_loop().time()
            self._meters[name] = RateMeter(limit, lambda: self._share(name), now)
        return self._meters[name]

    def _share(self, name: str | None) -> float:
        """This process's share of the requests with a key."""
        now, own, others = asyncio.get_running_loop().time(), 1, 0
        for paced in self._servers.values():
            if paced.server.api_key_variable == name:
                # each process counts one more than it asks for: rates are divided by the share, which mustn't be 0
                own += paced.gate.in_use + paced.gate.waiting
                others += sum(1 + page.in_use + page.waiting for page in paced.pages.alive(now).values())
        return own / (own + others)


@dataclass
class Permit:
    """The permit of one request to a server, which is told what came of it."""

    server: Endpoint
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    seconds: float = 0.0

    def answered(self, turn: SampledTurn) -> None:
        self.prompt_tokens = turn.usage.prompt_tokens
        self.sampled_tokens = turn.usage.completion_tokens
        self.seconds = turn.seconds


async def pace_texts(journal: Journal, endpoint: Endpoint) -> list[str]:
    """Each server that was asked in the last seconds, with its width and the reason for it, in words."""
    pages = await asyncio.gather(*(shown_pages(journal, server) for server in endpoint.servers))
    return [
        _text(server.base_url, found) for server, found in zip(endpoint.servers, pages, strict=True) if found
    ]


def _text(base_url: str, pages: Sequence[ServerPage]) -> str:
    width = max((page.width for page in pages), key=lambda width: width.changes)
    used, waiting = sum(page.in_use for page in pages), sum(page.waiting for page in pages)
    down = "; it is down" if any(page.down for page in pages) else ""
    return f"{base_url}: {used} of {width.width} requests at once, {waiting} waiting ({width.why}){down}"


def _key(server: Endpoint) -> tuple[str, str | None]:
    return server.base_url, server.api_key_variable
