"""Costs of keeping a run alive: checkpoints on and off, and a pause that reaches a thousand rollouts."""

import asyncio
import statistics
import time

from temporalio.api.enums.v1 import EventType

from benchmarks.loop import NO_OP, Bench
from benchmarks.table import Row, ratio
from clotho.run_settings import CheckpointPolicy
from clotho.runs.operations import Boundaries, Operations
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Script, terminal_turns

CHANGES_THE_WORKSPACE = "head -c 1000 /dev/urandom >> log"
SLOW_TURN = 8.0
"""Seconds: all of the thousand are in a turn, or between two, while the run is paused."""


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
        Row("ratio", ratio(*rates.values()), "≥ 0.9"),
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
