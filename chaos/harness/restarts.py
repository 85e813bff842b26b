"""Real harnesses whose sandbox is destroyed in the middle of a call: how far the journal answers the next start."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from temporalio.service import RPCError

from chaos import sandboxes
from chaos.cell import Stuck, completion, orphaned
from chaos.harness import tasks
from chaos.harness.scripts import REAL, HarnessScript, is_installed
from chaos.lanes import in_lanes
from chaos.scratch import scratch
from chaos.servers import Servers
from chaos.stage import RUN, Size, Stage, stage_on
from chaos.table import Name
from chaos.waiting import NotReached, until
from clotho.errors import ClothoError
from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.rollout_keys import agent_key, turn_key
from clotho.plugins.demo.provider import duplicate_calls
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.lease import Fidelity
from clotho.runs.rollouts import read_end

ROLLOUT = rollout_id(group_id(RUN, 0), 0)


@dataclass(frozen=True)
class Output:
    """What the harness' commands print."""

    title: str
    further: str | None = None
    """A command before the last."""

    @property
    def calls(self) -> int:
        return tasks.TURNS + 1 + (self.further is not None)


OUTPUTS = {
    "same": Output("its commands print the same again"),
    "other": Output(f"its command {tasks.TURNS} prints the time", "date +%s.%N"),
}


class RestartResult(FrozenModel):
    fault: str
    """The harness."""
    phase: str
    problem: str | None = None
    calls: int = 0
    """Calls that the second start made."""
    matched: int = 0
    """Those that the journal answered."""
    diverged_at: int | None = None
    fidelity: Fidelity | None = None
    repaid: int = 0
    """Calls that were answered twice."""
    score: float | None = None
    orphans: tuple[str, ...] = ()
    seconds: float = 0.0
    recovery: float | None = None
    footnotes: list[str] = []

    @property
    def missed(self) -> list[str]:
        if self.problem is not None:
            return [self.problem]
        other = OUTPUTS[self.phase].further is not None
        found = {
            f"repaid {self.repaid}": self.repaid,
            f"score {self.score}": self.score != 1.0,
            f"{self.fidelity}": self.fidelity is not (Fidelity.DIVERGED if other else Fidelity.REPLAYED),
            f"diverged at {self.diverged_at}": self.diverged_at != (tasks.TURNS if other else None),
            f"orphans {len(self.orphans)}": self.orphans,
        }
        return [text for text, missed in found.items() if missed]

    @property
    def told(self) -> str:
        if self.missed:
            return f"✗ {'; '.join(self.missed)}"
        anew = "" if self.diverged_at is None else f", diverged at call {self.diverged_at}"
        return f"{self.fidelity}: {self.matched} of {self.calls} calls from the journal{anew}; repaid {self.repaid}"


def playable() -> list[Name]:
    """Those that are installed."""
    return [(harness, output) for harness in REAL if is_installed(harness) for output in OUTPUTS]


async def play_all(names: Sequence[Name], keep: Callable[[RestartResult], None], lanes: int) -> None:
    """Hands each result to `keep`."""
    if names:
        async with scratch() as folder:
            await in_lanes(names, folder, lanes, play, keep)


async def play(servers: Servers, name: Name) -> RestartResult:
    result, clock = RestartResult(fault=name[0], phase=name[1]), time.monotonic()
    script = HarnessScript(name[0], OUTPUTS[name[1]].further)
    stage_name = f"{'-'.join(name)}-{time.time_ns():x}"
    try:
        async with stage_on(servers, stage_name, Size(1, 1), small_disks=(), slow={}, script=script) as stage:
            result = await measured(stage, result)
    except (NotReached, Stuck, ClothoError, RPCError) as problem:
        result = result.model_copy(update={"problem": str(problem)})
    return result.model_copy(update={"seconds": round(time.monotonic() - clock, 1)})


async def measured(stage: Stage, result: RestartResult) -> RestartResult:
    """The last call is in flight when the sandbox is destroyed."""
    stage.provider.hold = turn_key(ROLLOUT, OUTPUTS[result.phase].calls - 1)
    await stage.start_workers()
    handle = await stage.start_campaign()
    await until(lambda: asyncio.to_thread(stage.provider.held.is_set), "its last call")
    await sandboxes.destroy(stage, ROLLOUT)
    stage.provider.release()
    await completion(stage, handle, most_restarts=0)
    journal = stage.cluster.open_journal()
    entry = await journal.read_required(agent_key(ROLLOUT, 1), ProgramEntry)
    end = await read_end(journal, ROLLOUT)
    assert end is not None
    found = {
        "calls": entry.calls,
        "matched": entry.matched,
        "diverged_at": entry.diverged_at,
        "fidelity": entry.end.replayed,
        "repaid": duplicate_calls(stage.provider.calls, ()).repaid,
        "score": end.summary.score,
        "orphans": tuple((await orphaned(stage))[1]),
    }
    return result.model_copy(update=found)


def table(results: Mapping[Name, Sequence[RestartResult]]) -> list[str]:
    """Its lines."""
    lines = [
        f"| harness | {' | '.join(output.title for output in OUTPUTS.values())} |",
        f"|---|{'---|' * len(OUTPUTS)}",
    ]
    for harness in REAL:
        plays = [results.get((harness, output), ()) for output in OUTPUTS]
        # One that missed a target isn't made good by another.
        worst = [max(cell, key=lambda play: bool(play.missed)).told if cell else "–" for cell in plays]
        lines.append(f"| {harness} | {' | '.join(worst)} |")
    return lines
