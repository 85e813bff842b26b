"""Rollouts that ask a simulated model server through the pacers of several processes, in simulated time."""

import asyncio
import itertools
import math
import random
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from clotho.errors import ModelUnavailable
from clotho.journal import Journal
from clotho.journal.store import Written
from clotho.models.endpoint import Endpoint
from clotho.models.pacing import Pacer
from clotho.processes.load import ProcessLoad
from clotho.testing.shared_speed import SharedSpeed

MEDIAN_SECONDS, SIGMA, TOKENS_PER_SECOND = 1.64, 1.1, 50
"""Of log-normal turns: 3 s in the mean, 10 s in the 95th percentile."""
BEGINNING = 100.0
SERVER = Endpoint(base_url="http://simulated/v1")

Speed = Callable[[int], float]
"""The speed of each answer, by how many there are at once."""


class _Jumping(selectors.SelectSelector):
    """Waits for nothing: time goes on to when the next timer is due."""

    now = BEGINNING

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing would ever happen"
        self.now += max(0.0, timeout)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Jumping()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


class MemoryStore:
    """A store within this process: threads know nothing of simulated time."""

    identity = "memory"

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    async def create(self, key: str, body: bytes) -> bool:
        return self._blobs.setdefault(key, body) is body

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self._blobs.get(key) for key in keys]

    async def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self._blobs if key.startswith(prefix))

    async def written(self, prefix: str) -> Written:
        times: Mapping[str, float] = {}
        return Written(time.time(), times)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._blobs.pop(key, None)


@dataclass
class SimulatedServer:
    """Answers at a `speed` by the requests in flight; refuses more than `most`."""

    speed: Speed
    most: int = 1 << 20
    counts_tokens: bool = True
    """Whether answers have as many tokens as they take seconds, and not all the same number."""
    answered: list[tuple[float, float]] = field(default_factory=list)
    """When each answer was given, and the seconds it takes at full speed."""
    widths: list[int] = field(default_factory=list)
    """The width in each second."""

    async def ask(self, seconds: float) -> int:
        """Take what lasts `seconds` at full speed; the sampled tokens."""
        await asyncio.sleep(0.002)
        if len(self.work) >= self.most:
            raise ModelUnavailable("too many", throttled=True)
        await self.work.work(seconds)
        self.answered.append((asyncio.get_running_loop().time() - BEGINNING, seconds))
        return int(seconds * TOKENS_PER_SECOND) if self.counts_tokens else 100

    def __post_init__(self) -> None:
        self.work = SharedSpeed(self.speed)

    def rate(self, since: int, until: int) -> float:
        """The requests that it was answering at full speed, in the mean of that time."""
        return sum(work for at, work in self.answered if since <= at < until) / (until - since)


async def _rollout(pacer: Pacer, name: str, server: SimulatedServer, lengths: random.Random) -> None:
    for turn in itertools.count():
        try:
            async with pacer.permit(SERVER, name, 1, begun=turn > 0) as permit:
                began = asyncio.get_running_loop().time()
                seconds = MEDIAN_SECONDS * math.exp(SIGMA * lengths.gauss(0, 1))
                permit.sampled_tokens = await server.ask(seconds)
                permit.seconds = asyncio.get_running_loop().time() - began
        except ModelUnavailable:
            await asyncio.sleep(1.0)  # as Temporal does
        await asyncio.sleep(0.05)


async def _no_metrics(server: Endpoint) -> bytes | None:
    return None


async def _look(pacer: Pacer, after: float) -> None:
    await asyncio.sleep(after)
    await pacer.run()


async def _ask(
    server: SimulatedServer, rollouts: int, processes: int, seconds: int, changes: Mapping[int, Speed]
) -> None:
    store, lengths = MemoryStore(), random.Random(1)
    pacers = [
        Pacer(Journal(store), f"p{number}", {}, _no_metrics, 2_000, ProcessLoad())
        for number in range(processes)
    ]
    tasks = [asyncio.create_task(_look(pacer, 0.37 * number)) for number, pacer in enumerate(pacers)]
    tasks += [
        asyncio.create_task(_rollout(pacers[number % processes], f"run/g/r{number}", server, lengths))
        for number in range(rollouts)
    ]
    for second in range(seconds):
        if second in changes:
            server.work.change(changes[second])
        await asyncio.sleep(1.0)
        known = [paced.width for pacer in pacers for paced in pacer._servers.values()]
        server.widths.append(max(known, key=lambda width: width.changes).width)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def simulate(
    monkeypatch: pytest.MonkeyPatch,
    server: SimulatedServer,
    rollouts: int,
    seconds: int,
    processes: int = 1,
    changes: Mapping[int, Speed] | None = None,
) -> None:
    """Let `rollouts` ask for turns for so many seconds; `changes` are the server's speeds from a second on."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner, monkeypatch.context() as patched:
        loop = runner.get_loop()
        patched.setattr(time, "time", lambda: 1e9 + loop.time())
        runner.run(_ask(server, rollouts, processes, seconds, changes or {}))
