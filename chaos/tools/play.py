"""Cells of tools: rollouts of a scripted model, each with three calls that leave a mark."""

from collections.abc import Callable, Sequence

from chaos.cell import play
from chaos.lanes import LANES, in_lanes
from chaos.results import CellResult, Run
from chaos.scratch import scratch
from chaos.stage import RUN, Servers, Size
from chaos.table import Name
from chaos.tools.faults import FAULTS, PHASES
from chaos.tools.tasks import MARKS
from clotho.identifiers.ids import group_id, rollout_id

SIZE = Size(groups=1, group_size=2)
ROLLOUTS = [rollout_id(group_id(RUN, 0), sibling) for sibling in range(SIZE.group_size)]
EXPECTED = Run(
    rewards=dict.fromkeys(ROLLOUTS, 1.0), marks={each: dict.fromkeys(MARKS, 1) for each in ROLLOUTS}
)
"""By the script: nothing is left to chance."""


async def play_all(names: Sequence[Name], keep: Callable[[CellResult], None], lanes: int = LANES) -> None:
    """Hands each result to `keep`."""
    if not names:
        return

    async def one(servers: Servers, name: Name) -> CellResult:
        fault, phase = name
        return await play(servers, name, FAULTS[fault], PHASES[phase], SIZE, EXPECTED)

    async with scratch() as folder:
        await in_lanes(names, folder, lanes, one, keep)
