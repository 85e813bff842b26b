"""The moments of a rollout at which a fault strikes, and how a cell waits for exactly that one."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.sandboxes import kill_supervisors, marks
from chaos.stage import TOOLS, Stage
from chaos.waiting import until
from clotho.identifiers.ids import call_id, child_id
from clotho.identifiers.keys import asked_key, call_key, delegation_key, end_key, reward_key, turn_key

SLOW_COMMAND = 4
"""Seconds that a command takes which is to be met in its middle."""
STEP = 1
"""The turn, and the call, that faults strike: the rollout has a sandbox by then, with something in it."""


@dataclass(frozen=True)
class Hit:
    """The rollout stands at the phase, held there until released; the worker with `roles` is at it."""

    roles: str
    release: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Phase:
    """`points` are the fail points to pause at, the last of them the phase; `{turn}` and so on are journal keys."""

    title: str
    points: tuple[str, ...] = ()
    wait: Callable[[Stage, "Phase", str], Coroutine[Any, Any, Hit]] = lambda stage, phase, _: paused(
        stage, phase.points[-1]
    )
    holds_call: bool = False
    halves_answer: bool = False
    """The call is held when half of its answer has come."""
    slows_command: bool = False

    def rules(self, rollout: str) -> str:
        """The rules of the fail points that workers arm."""
        keys = keys_of(rollout)
        return ",".join(f"{point.format_map(keys)}:pause" for point in self.points)

    def slow(self, rollout: str) -> Mapping[str, int]:
        return {turn_key(rollout, STEP): SLOW_COMMAND} if self.slows_command else {}

    def held(self, rollout: str) -> str | None:
        return turn_key(rollout, STEP) if self.holds_call else None


def keys_of(rollout: str) -> Mapping[str, str]:
    call = call_id(STEP, 0)
    return {
        "rollout": rollout,
        "turn": turn_key(rollout, STEP),
        "asked": asked_key(rollout, STEP),
        "call": call_key(rollout, call),
        "delegation": delegation_key(rollout, call),
        "child": child_id(rollout, call),
        "reward": reward_key(rollout),
        "end": end_key(rollout),
    }


async def paused(stage: Stage, point: str) -> Hit:
    """A step stands at the fail point; removing the point's file lets it go on."""
    name = point.partition("[")[0]
    file = fail_folder(stage) / name
    await until(lambda: asyncio.to_thread(file.exists), name)
    pid = int(file.read_text().split()[0])
    return Hit(stage.roles_of(pid), lambda: file.unlink(missing_ok=True))


async def at_provider(stage: Stage, phase: Phase, rollout: str) -> Hit:
    asking = await paused(stage, phase.points[0])
    asking.release()
    await until(lambda: asyncio.to_thread(stage.provider.held.is_set), "a call at the provider")
    return Hit(asking.roles, stage.provider.release)


async def in_command(stage: Stage, phase: Phase, rollout: str) -> Hit:
    async def runs() -> bool:
        return (await marks(stage, rollout))[call_id(STEP, 0)] > 0

    await until(runs, "a command under way")
    return Hit(TOOLS)


async def in_restore(stage: Stage, phase: Phase, rollout: str) -> Hit:
    """Its sandbox is lost between two calls, which is what makes it restore."""
    lost = await paused(stage, phase.points[0])
    await kill_supervisors(stage, rollout)
    lost.release()
    return await paused(stage, phase.points[-1])


def fail_folder(stage: Stage) -> Path:
    return stage.cluster.folder / "fail"


PHASES = {
    "before-call": Phase("before the LLM call", ("turn.asking[{turn}]",)),
    "mid-call": Phase("mid-call", ("turn.asking[{turn}]",), wait=at_provider, holds_call=True),
    "answered": Phase("after the answer, before its entry", ("turn.answered[{turn}]",)),
    "journalled": Phase("after the entry, before completion", ("turn.journalled[{turn}]",)),
    "mid-command": Phase("mid-command", wait=in_command, slows_command=True),
    "between-calls": Phase("between tool calls", ("call.asked[{call}]",)),
    "reward": Phase("in the reward", ("reward.opened[{reward}]",)),
    "seal": Phase("between reward and seal", ("end.written[{end}]",)),
    "checkpoint": Phase("in checkpoint", ("checkpoint.taken[{rollout}/*]",)),
    "restore": Phase("in restore", ("call.asked[{call}]", "restore.unpacked[{rollout}/*]"), wait=in_restore),
}
CREATE = "create"
EVERY_PHASE = {CREATE: Phase("while its first sandbox is made", ("sandbox.created[{rollout}/*]",)), **PHASES}
"""Those that every fault strikes at, and one for the faults that name it."""
BEFORE_A_TURN = ("before-call", "journalled", "mid-command", "checkpoint")
"""Phases after which the rollout has another turn, at whose boundary a pause meets it."""
IN_A_TURN = ("before-call", "mid-call", "answered", "journalled")
LOCAL_STEPS = (CREATE, "between-calls", "checkpoint", "reward", "seal")
"""The phases that are within a step of the workflow's own process, where nothing is slow."""
