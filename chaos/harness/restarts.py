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
from chaos.plays import Name, Play
from chaos.scratch import scratch
from chaos.servers import Servers
from chaos.stage import RUN, Size, Stage, stage_on
from chaos.table import Table, Title
from chaos.waiting import NotReached, until
from clotho.errors import ClothoError
from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import agent_key, turn_key
from clotho.plugins.demo.provider import duplicate_calls
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.lease import Fidelity
from clotho.runs.rollouts import read_end

ROLLOUT = rollout_id(group_id(RUN, 0), 0)


@dataclass(frozen=True)
class Output:
    """A variant of what the harness' commands print."""

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


class RestartResult(Play):
    """The second start of a harness, which `fault` names."""

    calls: int = 0
    """Calls that the second start made."""
    matched: int = 0
    """Those that the journal answered."""
    diverged_at: int | None = None
    fidelity: Fidelity | None = None
    repaid: int = 0
    """Calls that were answered twice."""
    score: float | None = None

    @property
    def targets(self) -> Mapping[str, object]:
        other = OUTPUTS[self.phase].further is not None
        return {
            f"repaid {self.repaid}": self.repaid,
            f"score {self.score}": self.score != 1.0,
            f"{self.fidelity}": self.fidelity is not (Fidelity.DIVERGED if other else Fidelity.REPLAYED),
            f"diverged at {self.diverged_at}": self.diverged_at != (tasks.TURNS if other else None),
            f"orphans {len(self.orphans)}": self.orphans,
        }

    @property
    def counts(self) -> Mapping[str, int]:
        return {
            "calls": self.calls,
            "answered from the journal": self.matched,
            "repaid": self.repaid,
            "orphans": len(self.orphans),
        }

    @property
    def footnotes(self) -> list[str]:
        anew = "" if self.diverged_at is None else f", diverged at call {self.diverged_at}"
        return [
            f"{self.fidelity}: {self.matched} of {self.calls} calls from the journal{anew}; repaid {self.repaid}"
        ]


async def play_all(names: Sequence[Name], keep: Callable[[RestartResult], None], lanes: int) -> None:
    """Hands each result to `keep`."""
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


TABLE = Table(
    name="restarts",
    heading="### Real harnesses started anew",
    cells="starts anew",
    faults={name: Title(name) for name in REAL},
    phases=OUTPUTS,
    kind=RestartResult,
    play_all=play_all,
    rows="harness",
    there_is=lambda name: is_installed(name[0]),
    legend="""\
The sandbox of each was destroyed while its last call was in flight. Its next start made its calls again. A call is
counted as repaid where the model answered the same one twice. What follows a call that differs is asked for anew,
on a branch of its own. A – stands for a harness that isn't installed: `make harnesses` and
[the guide](how-to/harnesses.md) tell how.
""",
)
