"""The crashes of `clotho demo --crash`: a worker, a sandbox in use, and then all workers at once are killed."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rich.table import Table
from temporalio.client import Client

from clotho.cli.terminal import amount
from clotho.config import Settings
from clotho.embedded.services import Services
from clotho.identifiers.keys import turn_prefix
from clotho.journal import Journal
from clotho.plugins.demo.damage import HostSandboxes, damage_table, effects
from clotho.plugins.demo.kill_processes import kill_supervisors, worker_processes
from clotho.plugins.demo.provider import Provider, duplicate_calls
from clotho.rollouts.turn import TurnEntry
from clotho.testing.scripted_model import serving

ENVIRONMENT = "_marked_file_tasks"
TURNS = 2
"""Turns of most rollouts of this environment."""
POLL = 0.05

Found = TypeVar("Found")


@dataclass
class FaultInjector:
    """Kills parts of a run, and counts what it came to."""

    services: Services
    provider: Provider
    sandboxes: HostSandboxes
    url: str
    say: Callable[[str], None]
    killed: Counter[str] = field(default_factory=Counter)
    deaths: list[float] = field(default_factory=list)
    """Times at which a worker was killed."""

    async def strike(self, turns: int) -> None:
        """Kill when a third of `turns` is answered, and when two thirds are."""
        await until(lambda: self.answered_are(turns / 3))
        await self.kill_workers(most=1)
        await self.kill_sandbox()
        await until(lambda: self.answered_are(turns * 2 / 3))
        await self.kill_workers()

    @property
    def answered(self) -> int:
        return len({call.key for call in self.provider.calls if call.answered})

    async def answered_are(self, turns: float) -> bool:
        return self.answered >= turns

    async def kill_workers(self, most: int | None = None) -> None:
        parent = self.services.worker.pid
        assert parent is not None
        doomed = (await until(lambda: asyncio.to_thread(worker_processes, parent)))[:most]
        for process in doomed:
            os.kill(process, signal.SIGKILL)
        self.deaths.append(time.monotonic())
        self.struck("worker", len(doomed))

    async def kill_sandbox(self) -> None:
        """Kill a sandbox whose rollout waits for the model, and so will need it again."""
        [lease, *_] = await until(self.waiting)
        await asyncio.to_thread(kill_supervisors, self.sandboxes.root, lease)
        self.struck("sandbox")

    async def waiting(self) -> list[str]:
        return [lease for lease in await self.sandboxes.leases() if self.waits(lease)]

    def waits(self, lease: str) -> bool:
        turns = turn_prefix(lease.partition("/lease/")[0])
        answers = {call.key: call.answered for call in self.provider.calls if call.key.startswith(turns)}
        return not all(answers.values())

    def struck(self, what: str, count: int = 1) -> None:
        self.killed[what] += count
        self.say(f"killed {amount(count, what)}, after {amount(self.answered, 'turn')}")

    async def damage(self, client: Client, journal: Journal, groups: int) -> Table:
        to_reaper = await self.sandboxes.leases()
        orphans = await self.sandboxes.orphans(client, journal)
        return damage_table(
            self.killed,
            groups,
            await effects(journal, self.sandboxes.run),
            self.answered,
            duplicate_calls(self.provider.calls, self.deaths),
            len(to_reaper),
            len(orphans),
        )


@asynccontextmanager
async def crashing(
    services: Services, settings: Settings, journal: Journal, run: str, turns: int, say: Callable[[str], None]
) -> AsyncIterator[FaultInjector]:
    """Strike while inside. The run is expected to take `turns`, and asks its model at the injector's `url`."""
    loop = asyncio.get_running_loop()

    # called from a thread: the provider's server has a loop of its own
    def journalled(key: str) -> bool:
        return asyncio.run_coroutine_threadsafe(journal.read(key, TurnEntry), loop).result() is not None

    root = settings.sandbox.folder_of(journal.store_identity)
    sandboxes = HostSandboxes(settings, root, run)
    provider = Provider(services.model.url, journalled)
    async with serving(provider) as url:
        crashes = FaultInjector(services, provider, sandboxes, url, say)
        striking = asyncio.create_task(crashes.strike(turns))
        try:
            yield crashes
            # a short run may end before all strikes; one that failed is told
            if striking.done():
                striking.result()
        finally:
            striking.cancel()
            await asyncio.wait([striking])


async def until(look: Callable[[], Awaitable[Found]]) -> Found:
    """The first result of `look` that isn't empty."""
    while True:
        if found := await look():
            return found
        await asyncio.sleep(POLL)
