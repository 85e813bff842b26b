"""An agent's program: what runs it, what it is given, and how it ends.

A plugin brings the programs (`Plugin.agents`). The program acts in the rollout's sandbox with a loop of its own,
and asks for each turn of the model. Each is a step of the rollout's workflow, journalled under the turn's number
(`activities/agents.py`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from clotho.frozen_model import FrozenModel
from clotho.rollouts.asked import AskedEntry, AskedTools
from clotho.rollouts.program_end import ProgramEnd
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.run import RunManifest
from clotho.rollouts.turn import TurnEntry
from clotho.sandbox.backend import SandboxInstance

MOST_ASKED_AT_ONCE = 8
"""Turns that a program may wait for at once; Temporal takes ten updates of a workflow at a time."""


class ProgramEntry(FrozenModel):
    """A program's end, and how its calls compare with those of earlier starts."""

    end: ProgramEnd
    output: str = ""
    """The end of what it wrote."""
    calls: int = 0
    matched: int = 0
    """Calls that an earlier start had made, which the journal answered."""
    diverged_at: int | None = None
    """The first call, counted from 0, that the earlier start hadn't made, though it went on further."""
    repeated: int = 0
    """Calls that were answered again: the program's connection was cut before it had the answer."""


class ProgramServer(FrozenModel):
    """An attempt has begun to serve a program."""

    queue: str
    """The task queue of its process."""
    activity: str
    """The run of the workflow, and the activity's id in it."""
    attempt: int


@dataclass(frozen=True)
class AnsweredTurn:
    """A turn, or the limit that forbids it."""

    entry: TurnEntry | None
    limit: str | None = None


@dataclass(frozen=True)
class Stage:
    """The sandbox, files and clock that a program acts with. One process at a time has it."""

    rollout: str
    manifest: RunManifest
    prompt: Prompt
    sandbox: SandboxInstance
    lease: int
    server: int
    """The number of this attempt, higher than those before it in whatever process."""
    context_tokens: int | None
    """The model's context, where its server tells it."""
    seconds_left: float | None
    counted: tuple[int, ...]
    """The turns that the workflow has counted; it has to be asked for each."""
    asked: Callable[[], Awaitable[dict[int, AskedEntry]]]
    """The calls that the rollout's programs have made, by turn."""
    turns: Callable[[list[int]], Awaitable[dict[int, TurnEntry]]]
    """The answered ones of the turns with these numbers."""
    ask: Callable[[int, AskedEntry, AskedTools], Awaitable[int]]
    """Keep a call under the first free number from one on; returns the number, which is the turn's."""
    answer: Callable[[int], Awaitable[AnsweredTurn]]
    """Have a turn sampled, or find it. It takes as long as pauses and outages last."""


class AgentProgram(Protocol):
    """Runs a program to its end, or goes on with one that another process had begun."""

    async def __call__(self, stage: Stage) -> ProgramEntry: ...
