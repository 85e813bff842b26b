"""Cells of tools: rollouts of a scripted model, each with three calls that leave a mark."""

from collections.abc import Callable, Sequence

from chaos.cell import play
from chaos.lanes import LANES, in_lanes
from chaos.plays import Name
from chaos.results import CellResult, Run
from chaos.scratch import scratch
from chaos.servers import ScriptedTasks, Servers
from chaos.stage import RUN, Size
from chaos.tools.delegating import DelegationScript
from chaos.tools.faults import FAULTS, phases_of
from chaos.tools.tasks import BEGUN, BESIDE, MARKS
from clotho.identifiers.ids import child_id, group_id, rollout_id

SIZE = Size(groups=1, group_size=2)
ROLLOUTS = [rollout_id(group_id(RUN, 0), sibling) for sibling in range(SIZE.group_size)]


def expected(script: ScriptedTasks | None) -> Run:
    """The run that the script leads to: nothing is left to chance."""
    marks = {each: dict.fromkeys(MARKS, 1) for each in ROLLOUTS}
    if isinstance(script, DelegationScript):
        marks = {each: dict.fromkeys((*MARKS, *BESIDE.values()), 1) for each in ROLLOUTS}
        marks |= {child_id(each, mark): {BEGUN: 1, mark: 1} for each in ROLLOUTS for mark in MARKS}
    return Run(rewards=dict.fromkeys(ROLLOUTS, 1.0), marks=marks)


async def play_all(names: Sequence[Name], keep: Callable[[CellResult], None], lanes: int = LANES) -> None:
    """Hands each result to `keep`."""

    async def one(servers: Servers, name: Name) -> CellResult:
        fault, phase = name
        kind = FAULTS[fault]
        return await play(servers, name, kind, phases_of(fault)[phase], SIZE, expected(kind.script))

    async with scratch() as folder:
        await in_lanes(names, folder, lanes, one, keep)
