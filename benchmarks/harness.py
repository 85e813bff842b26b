"""Programs with a loop of their own: what their calls cost beyond turns of Clotho's loop with the same commands."""

import time
from pathlib import Path
from typing import Any

from benchmarks.cpu import cpu_seconds
from benchmarks.loop import Bench
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
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


async def measure(measured: Bench, rollouts: int = 64, real: int = 16, calls: int = 10) -> list[Row]:
    """`rollouts` of the tests' small harness at once, and `real` of mini-swe-agent where it is installed."""
    script = Script(conversations=(terminal_turns(calls - 1),))
    settings = RunSettings(plugins={"harness": {"command": list(COMMAND)}})
    await play(measured, script, GROUP_SIZE, "command", settings)
    cpu, seconds = await beyond(measured, script, script, rollouts, calls, "command", settings)
    rows = [
        Row(
            f"{rollouts} small harnesses at once, a call beyond a turn: time", f"{seconds:.1f} ms", "≤ 15 ms"
        ),
        Row("… CPU of all processes", f"{cpu:.1f} ms", "≤ 10 ms"),
    ]
    if (INSTALLED / "bin/mini").exists():
        mounts = {PLACE: str(INSTALLED.resolve())}
        settings = RunSettings(mounts=mounts, plugins={"harness": {"path": f"{PLACE}/bin"}})
        cpu, seconds = await beyond(measured, script, mini(calls), real, calls, "mini-swe-agent", settings)
        rows += [
            Row(f"{real} of mini-swe-agent at once, its own work included: time", f"{seconds:.0f} ms"),
            Row("… CPU of all processes", f"{cpu:.0f} ms"),
        ]
    return rows


def mini(calls: int) -> Script:
    """Script the same commands for mini-swe-agent, and a last one that ends it."""
    turns = [
        ScriptedTurn(calls=(ScriptedCall(name="bash", arguments={"command": command}),))
        for command in (*["true"] * (calls - 1), SUBMIT)
    ]
    return Script(conversations=(Conversation(variants=(tuple(turns),)),))


async def beyond(
    measured: Bench,
    loop: Script,
    script: Script,
    rollouts: int,
    calls: int,
    program: str,
    settings: RunSettings,
) -> tuple[float, float]:
    """Milliseconds of CPU and of time that a program's call takes beyond a turn of Clotho's loop."""
    own_cpu, own_seconds = await play(measured, loop, rollouts, None, RunSettings())
    cpu, seconds = await play(measured, script, rollouts, program, settings)
    share = 1e3 / rollouts / calls
    return (cpu - own_cpu) * share, (seconds - own_seconds) * share


async def play(
    measured: Bench, script: Script, rollouts: int, program: str | None, settings: RunSettings
) -> tuple[float, float]:
    """Seconds of CPU and of time that `rollouts` at once take, whose agent is `program` or Clotho's loop."""
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
            overrides={"max_agent_turns": 50},
            task_queues=TaskQueues(),
            **agent,
        )
        await handle.result()
        return cpu_seconds() - used, time.perf_counter() - clock
