"""Programs with a loop of their own: what their calls cost beyond turns of Clotho's loop with the same commands."""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bare import WORKFLOWS, BareCalls
from benchmarks.cpu import cpu_seconds
from benchmarks.loop import Bench, bare_workers
from benchmarks.table import Row
from clotho.rollouts.agent import Agent, AgentKind
from clotho.rollouts.task_queues import TaskQueues
from clotho.run_settings import RunSettings
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn, terminal_turns

ENVIRONMENT = "tests.environments.harnessed:Harnessed"
COMMAND = ["python3", "/work/agent.py", "{task_file}"]
INSTALLED = Path(__file__).parents[1] / ".venv/harnesses"
PLACE = "/opt/agents"
GROUP_SIZE = 4
FEW, MANY = 4, 14
"""Calls of a rollout."""
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


async def measure(measured: Bench, rollouts: int = 64, real: int = 16) -> list[Row]:
    """`rollouts` of the tests' small harness at once, and `real` of mini-swe-agent where it is installed."""
    settings = RunSettings(plugins={"harness": {"command": list(COMMAND)}})
    await play(measured, commands(FEW), GROUP_SIZE, "command", settings)
    # thrice: the machine's speed changes between the plays whose difference is a call
    found = [await start_and_call(measured, rollouts, settings) for _ in range(3)]
    starts, calls = zip(*found, strict=True)
    bare = await bare_call(measured, rollouts)
    rows = [
        Row(
            f"{rollouts} small harnesses at once, a call beyond a turn: time",
            spread([call.ms for call in calls]),
            "≤ 15 ms",
        ),
        Row("… CPU of all processes", spread([call.cpu_ms for call in calls]), "≤ 10 ms"),
        Row("… of bare Temporal's, an Update with an empty local activity", f"{bare.cpu_ms:.1f} ms"),
        Row(
            "… its start and end beyond a rollout's: CPU of all processes",
            spread([start.cpu_ms for start in starts]),
        ),
    ]
    if (INSTALLED / "bin/mini").exists():
        mounts = {PLACE: str(INSTALLED.resolve())}
        settings = RunSettings(mounts=mounts, plugins={"harness": {"path": f"{PLACE}/bin"}})
        # Its imports take seconds: what a call takes is lost in their noise.
        more = await beyond(measured, mini, FEW, real, "mini-swe-agent", settings)
        what = f"{real} of mini-swe-agent at once, {FEW} calls each, beyond turns: CPU of all processes"
        rows.append(Row(what, f"{more.cpu_ms:.0f} ms"))
    return rows


@dataclass(frozen=True)
class Cost:
    """CPU of all processes, and time, of one of what is done at once."""

    cpu_ms: float
    ms: float

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.cpu_ms - other.cpu_ms, self.ms - other.ms)

    def __truediv__(self, parts: int) -> "Cost":
        return Cost(self.cpu_ms / parts, self.ms / parts)


def commands(calls: int) -> Script:
    """Script `calls - 1` commands and an answer."""
    return Script(conversations=(terminal_turns(calls - 1),))


def mini(calls: int) -> Script:
    """Script the same commands for mini-swe-agent, and a last one that ends it."""
    turns = [
        ScriptedTurn(calls=(ScriptedCall(name="bash", arguments={"command": command}),))
        for command in (*["true"] * (calls - 1), SUBMIT)
    ]
    return Script(conversations=(Conversation(variants=(tuple(turns),)),))


def spread(milliseconds: Sequence[float]) -> str:
    """The median, with the least and the greatest in brackets."""
    return f"{statistics.median(milliseconds):.1f} ms ({min(milliseconds):.1f} to {max(milliseconds):.1f})"


async def start_and_call(measured: Bench, rollouts: int, settings: RunSettings) -> tuple[Cost, Cost]:
    """Measure what the small harness's start and end, and a call, take beyond Clotho's loop.

    A call's is the difference of rollouts of few and of many calls; the start's is what is left of those of few.
    """
    few, many = [
        await beyond(measured, commands, calls, rollouts, "command", settings) for calls in (FEW, MANY)
    ]
    call = (many - few) / (MANY - FEW)
    return Cost(few.cpu_ms - FEW * call.cpu_ms, few.ms - FEW * call.ms), call


async def beyond(
    measured: Bench,
    script: Callable[[int], Script],
    calls: int,
    rollouts: int,
    program: str,
    settings: RunSettings,
) -> Cost:
    """Measure what a rollout of a program takes beyond one of Clotho's loop with the same commands."""
    played = await play(measured, script(calls), rollouts, program, settings)
    return played - await play(measured, commands(calls), rollouts, None, RunSettings())


async def play(
    measured: Bench, script: Script, rollouts: int, program: str | None, settings: RunSettings
) -> Cost:
    """Measure what each of `rollouts` at once takes, whose agent is `program` or Clotho's loop."""
    measured.runs += 1
    agent: dict[str, Any] = (
        {} if program is None else {"agent": Agent(kind=AgentKind.PROGRAM, program=program)}
    )
    async with measured.model(script) as url:
        used, clock = cpu_seconds(), time.perf_counter()
        handle = await measured.cluster.start(
            f"bench-{measured.runs}",
            url,
            environment=ENVIRONMENT,
            groups=rollouts // GROUP_SIZE,
            group_size=GROUP_SIZE,
            max_open_groups=rollouts,
            settings=settings,
            overrides={"max_agent_turns": MANY + 1},
            task_queues=TaskQueues(),
            **agent,
        )
        await handle.result()
        return Cost((cpu_seconds() - used) * 1e3, (time.perf_counter() - clock) * 1e3) / rollouts


async def bare_call(measured: Bench, workflows: int, calls: int = 20) -> Cost:
    """Measure an Update that runs an empty local activity, of as many bare workflows at once, one after another."""

    async def calling(name: str) -> None:
        handle = await measured.cluster.client.start_workflow(
            BareCalls.run, calls, id=f"bare-calls-{name}", task_queue=WORKFLOWS
        )
        for _ in range(calls):
            await handle.execute_update(BareCalls.call)
        await handle.result()

    async with bare_workers(measured):
        await calling("first")
        used, clock = cpu_seconds(), time.perf_counter()
        await asyncio.gather(*(calling(str(number)) for number in range(workflows)))
        return Cost((cpu_seconds() - used) * 1e3, (time.perf_counter() - clock) * 1e3) / (workflows * calls)
