"""Costs of keeping a run alive: checkpoints on and off, a pause of a thousand rollouts, rests of ten thousand."""

import asyncio
import statistics
import time

from temporalio.api.enums.v1 import EventType

from benchmarks.cpu import cpu_seconds
from benchmarks.loop import NO_OP, Bench
from benchmarks.table import Row
from clotho.identifiers.ids import group_id
from clotho.identifiers.run_keys import pause_prefix
from clotho.rollouts.run import PAUSED_BY_HAND, PauseEntry
from clotho.run_settings import CheckpointPolicy
from clotho.runs.operations import Boundaries, Operations
from clotho.runs.pauses import pause as pause_now
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Script, terminal_turns

CHANGES_THE_WORKSPACE = "head -c 1000 /dev/urandom >> log"
SLOW_TURN = 8.0
"""Seconds: all of the thousand are in a turn, or between two, while the run is paused."""

SETTLING_SECONDS, WATCHED_SECONDS = 30.0, 60.0
"""Before, and while, the CPU of rests is measured: several looks for those whose process has died."""


async def checkpoints(measured: Bench, rollouts: int = 40, turns: int = 10, repeats: int = 3) -> list[Row]:
    """Rollouts whose every turn changes the workspace, with an instant model: checkpoints by default and off."""
    script = Script(conversations=(terminal_turns(turns, CHANGES_THE_WORKSPACE),))
    rates: dict[CheckpointPolicy, list[float]] = {CheckpointPolicy.EVERY_TURN: [], CheckpointPolicy.OFF: []}
    async with measured.model(script) as url:
        for number in range(repeats):
            for policy in sorted(rates, reverse=number % 2 == 1):
                _, seconds = await measured.rollouts(
                    url, groups=rollouts // 4, group_size=4, checkpoints=policy
                )
                rates[policy].append(rollouts * turns / seconds)
    on, off = (statistics.median(rates[policy]) for policy in rates)
    return [
        Row("a command a turn, checkpoints after each turn", f"{on:.0f} turns/s"),
        Row("a command a turn, no checkpoints", f"{off:.0f} turns/s"),
        Row("ratio", f"{on / off:.2f}", "≥ 0.9"),
    ]


async def pause(measured: Bench, rollouts: int = 1_000) -> list[Row]:
    """A run of that many rollouts, all of them sampling, is paused, and goes on."""
    script = Script(conversations=(Conversation(variants=((NO_OP,),)),), latency=SLOW_TURN)
    async with measured.model(script) as url:
        name, _ = await measured.start(url, groups=rollouts // 8, group_size=8)
        target = Target.named(name)
        operate = Operations(measured.cluster.open_journal(), measured.cluster.client)

        async def reached(wanted: Boundaries) -> float:
            clock = time.monotonic()
            while await operate.boundaries(target) != wanted:  # noqa: ASYNC110  # visibility tells nobody
                await asyncio.sleep(0.2)
            return time.monotonic() - clock

        await reached(Boundaries(running=rollouts, paused=0))
        await operate.pause(target)
        stopped = await reached(Boundaries(running=rollouts, paused=rollouts))
        signals = 0
        async for execution in measured.cluster.client.list_workflows(f"ClothoRun = '{target.run}'"):
            history = await measured.cluster.client.get_workflow_handle(execution.id).fetch_history()
            kinds = [event.event_type for event in history.events]
            signals += kinds.count(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
        await operate.resume(target)
        resumed = await reached(Boundaries(running=rollouts, paused=0))
        await operate.cancel(target)
        await reached(Boundaries(running=0, paused=0))
    return [
        Row(f"a pause of {rollouts} rollouts, until each rests at a turn's boundary", f"{stopped:.0f} s"),
        Row("signals sent for it", f"{signals}", "≤ 1"),
        Row(f"until {rollouts} go on", f"{resumed:.0f} s"),
    ]


async def rests(measured: Bench, rollouts: int = 10_000, size: int = 8) -> list[Row]:
    """The CPU that paused rollouts take, of a run and of groups, beyond that of the same processes without them."""
    script = Script(conversations=(Conversation(variants=((NO_OP,),)),))
    client, journal = measured.cluster.client, measured.cluster.open_journal()
    name, groups = f"bench-{measured.runs + 1}", rollouts // size
    idle = await _load()
    each = {group_id(name, number): PAUSED_BY_HAND for number in range(groups)}
    await journal.append(pause_prefix(name), PauseEntry(paused=each, at=time.time()))
    async with measured.model(script) as url:
        await measured.start(url, groups=groups, group_size=size)
        operate, target = Operations(journal, client), Target.named(name)
        while await operate.boundaries(target) != Boundaries(rollouts, rollouts):  # noqa: ASYNC110
            await asyncio.sleep(1.0)
        of_groups = await _load()
        await pause_now(journal, name, PAUSED_BY_HAND)
        of_run = await _load()
        await operate.cancel(target)
        while (await operate.boundaries(target)).running:  # noqa: ASYNC110
            await asyncio.sleep(1.0)
    return [
        Row(f"{rollouts} rollouts of a paused run, of a core", f"{of_run - idle:.1%}", "≤ 5 %"),
        Row(f"{rollouts} rollouts of paused groups, of a core", f"{of_groups - idle:.1%}", "≤ 5 %"),
        Row("the same processes without them, of a core", f"{idle:.1%}"),
    ]


async def _load() -> float:
    """The CPU that all processes take for a minute, of a core."""
    await asyncio.sleep(SETTLING_SECONDS)
    clock, began = time.monotonic(), cpu_seconds()
    await asyncio.sleep(WATCHED_SECONDS)
    return (cpu_seconds() - began) / (time.monotonic() - clock)
