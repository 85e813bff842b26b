"""Storms over verification: rollouts whose verifiers tidy up, and workers that come and go.

Every rollout's answer is right, so each reward other than 1 is wrong. A storm has one, two or three worker
processes on the host, and no fault, errnos or kills: `python -m chaos --table storms --plays 5` plays each of
the nine five times.
"""

import asyncio
import random
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from chaos.plays import Name, Play
from chaos.scratch import scratch
from chaos.servers import Servers, servers_in
from chaos.table import Table, Title
from chaos.verifiers import KINDS, VerifierConfig
from clotho.config import TemporalSettings
from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import reward_key
from clotho.processes.child import ChildProcess
from clotho.rollouts.verification import RewardEntry
from clotho.temporal.connection import connect
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster, register

ENVIRONMENT = "chaos.verifiers:TidyingVerifiers"
GROUP_SIZE = 4
COMPLETION_SECONDS = 1200.0
PAUSES = (2.0, 5.0)
"""Seconds between two strikes."""
STRIKES = 6
STARVED_SECONDS = 3.0
FEWEST = 3
ANSWERS = ScriptedTurn(
    calls=(ScriptedCall(name="terminal", arguments={"command": "echo right > /work/answer"}),)
)
SCRIPT = Script(conversations=(Conversation(variants=((ANSWERS, ScriptedTurn(content="Done.")),)),))

Strike = Callable[[ChildProcess], Awaitable[None]]


async def kill(worker: ChildProcess) -> None:
    await worker.kill()
    await worker.start()


async def starve(worker: ChildProcess) -> None:
    """Without descriptors, whatever the worker opens fails."""
    assert worker.pid is not None
    before, most = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (FEWEST, most))
    await asyncio.sleep(STARVED_SECONDS)
    if worker.running:
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (before, most))
    else:
        await worker.start()


@dataclass(frozen=True)
class Storm:
    title: str
    strike: Strike | None = None


FAULTS = {
    "storm": Storm("no fault"),
    "storm-errnos": Storm(f"a worker without descriptors for {STARVED_SECONDS:g} s, {STRIKES} times", starve),
    "storm-kills": Storm(f"SIGKILL of a worker, {STRIKES} times", kill),
}
WORKERS = {"1": Title("1 worker process"), "2": Title("2"), "3": Title("3")}
ROLLOUTS = len(KINDS) * GROUP_SIZE


class StormPlay(Play):
    """One storm; `phase` is its number of worker processes."""

    right: int = 0
    """Rewards."""

    @property
    def targets(self) -> Mapping[str, object]:
        wrong = ROLLOUTS - self.right
        return {f"{wrong} wrong": wrong}

    @property
    def counts(self) -> Mapping[str, int]:
        return {"right rewards": self.right}

    @property
    def footnotes(self) -> Sequence[str]:
        return (f"{self.right} right",)


async def play_all(names: Sequence[Name], keep: Callable[[StormPlay], None], lanes: int) -> None:
    """One after another, in any number of lanes: a storm takes the whole machine."""
    async with scratch() as folder, servers_in(folder / "storms") as servers:
        for number, (fault, workers) in enumerate(names):
            clock = time.monotonic()
            name = f"{fault}-{workers}-{number}"
            scores = await storm(servers, name, FAULTS[fault].strike, int(workers))
            right, seconds = scores.count(1.0), round(time.monotonic() - clock, 1)
            keep(StormPlay(fault=fault, phase=workers, right=right, seconds=seconds))


async def storm(servers: Servers, name: str, strike: Strike | None, workers: int) -> list[float | None]:
    """The scores of one storm's rollouts."""
    folder = servers.folder / name
    folder.mkdir(mode=0o711)
    client = await connect(TemporalSettings(address=servers.temporal.address, namespace=name))
    await register(client)
    cluster = Cluster(client, folder, servers.temporal.address)
    async with serving(ScriptedModel(SCRIPT)) as url:
        try:
            await cluster.start_worker("llm")
            struck = [await cluster.start_worker("workflows,tools") for _ in range(workers)]
            handle = await cluster.start(
                "storm", url, environment=ENVIRONMENT, groups=len(KINDS), group_size=GROUP_SIZE
            )
            async with striking(struck, strike, random.Random(name)):
                await asyncio.wait_for(handle.result(), COMPLETION_SECONDS)
            return [await score_of(cluster, rollout) for rollout in rollouts()]
        finally:
            await asyncio.gather(*(worker.kill() for worker in cluster.workers))
            await cluster.destroy_sandboxes()


def rollouts() -> list[str]:
    return [
        rollout_id(group_id("storm", group), sibling)
        for group in range(len(KINDS))
        for sibling in range(GROUP_SIZE)
    ]


async def score_of(cluster: Cluster, rollout: str) -> float | None:
    entry = await cluster.open_journal().read(reward_key(rollout), RewardEntry)
    return None if entry is None else entry.score


@asynccontextmanager
async def striking(
    workers: Sequence[ChildProcess], strike: Strike | None, chance: random.Random
) -> AsyncIterator[None]:
    """Strike one worker after the other, at random moments, while the body runs."""

    async def strikes(strike: Strike) -> None:
        for _ in range(STRIKES):
            await asyncio.sleep(chance.uniform(*PAUSES))
            await strike(chance.choice(workers))

    task = asyncio.create_task(strikes(strike)) if strike is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


TABLE = Table(
    name="storms",
    heading="## Storms over verification",
    cells="storms",
    faults=FAULTS,
    phases=WORKERS,
    kind=StormPlay,
    play_all=play_all,
    legend=f"""\
A storm is a run of {ROLLOUTS} rollouts whose answers are right, so that each reward other than 1 is wrong. Their
verifiers read the answer and remove or overwrite it, name files at random, run commands side by side, or take
{VerifierConfig().longest_seconds:g} s. `python -m chaos --table storms --plays 5` plays each storm five times.
""",
)
