"""Cells of harnesses: rollouts of a small one, each with a few calls that are answered by a script."""

from collections.abc import Callable, Sequence

from chaos.cell import play
from chaos.containers.engine import make_images
from chaos.harness import tasks
from chaos.harness.faults import CONTAINED, FAULTS, PHASES
from chaos.lanes import LANES, in_lanes
from chaos.plays import Name
from chaos.results import CellResult, Run
from chaos.scratch import scratch
from chaos.servers import Servers
from chaos.stage import RUN, Size
from clotho.identifiers.ids import group_id, rollout_id

SIZE = Size(groups=1, group_size=2)
ROLLOUTS = [rollout_id(group_id(RUN, 0), sibling) for sibling in range(SIZE.group_size)]
EXPECTED = Run(
    rewards=dict.fromkeys(ROLLOUTS, 1.0),
    marks={each: dict.fromkeys(tasks.EXPECTED, 1) for each in ROLLOUTS},
    turns=len(ROLLOUTS) * (tasks.TURNS + 1),
)
"""The run that the script leads to: nothing is left to chance."""


async def play_all(names: Sequence[Name], keep: Callable[[CellResult], None], lanes: int = LANES) -> None:
    """Hands each result to `keep`."""
    async with scratch() as folder:
        images = folder / "images"
        if any(fault in CONTAINED for fault, _ in names):
            await make_images(images)

        async def one(servers: Servers, name: Name) -> CellResult:
            fault, phase = name
            contained = images if fault in CONTAINED else None
            return await play(servers, name, FAULTS[fault], PHASES[phase], SIZE, EXPECTED, contained)

        await in_lanes(names, folder, lanes, one, keep)
