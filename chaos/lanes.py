"""Cells side by side: each lane plays one after another on servers of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

from chaos.cell import play, undisturbed
from chaos.containers.engine import make_images
from chaos.faults import Fault
from chaos.phases import EVERY_PHASE
from chaos.plays import Name, P
from chaos.results import CellResult
from chaos.scratch import scratch
from chaos.servers import Servers, servers_in
from chaos.stage import Size

LANES = 2
"""Most of a cell is waiting, but with three on two cores workers start too slowly for the times to mean much."""


async def play_all(
    kinds: Mapping[str, Fault],
    names: Sequence[Name],
    keep: Callable[[CellResult], None],
    lanes: int = LANES,
    contained: bool = False,
) -> None:
    """Hands each result to `keep`, compared with an undisturbed run.

    Where they are `contained`, sandboxes are in containers, of an engine for each cell.
    """
    size = Size()
    async with scratch() as folder:
        images = folder / "images" if contained else None
        if images:
            await make_images(images)
        async with servers_in(folder / "first") as servers:
            expected = await undisturbed(servers, "undisturbed", size, images)

        async def one(servers: Servers, name: Name) -> CellResult:
            fault, phase = name
            return await play(servers, name, kinds[fault], EVERY_PHASE[phase], size, expected, images)

        await in_lanes(
            [each for each in names if not kinds[each[0]].short_histories], folder, lanes, one, keep
        )
        apart = [each for each in names if kinds[each[0]].short_histories]
        await in_lanes(apart, folder / "short-histories", lanes, one, keep, short_histories=True)


async def in_lanes(
    names: Sequence[Name],
    folder: Path,
    lanes: int,
    one: Callable[[Servers, Name], Awaitable[P]],
    keep: Callable[[P], None],
    short_histories: bool = False,
) -> None:
    """Play `one` of each name; servers have their files in `folder`."""
    waiting = list(reversed(names))

    async def lane(number: int) -> None:
        for servings in count():
            async with servers_in(folder / f"lane-{number}-{servings}", short_histories) as servers:
                while waiting:
                    keep(result := await one(servers, waiting.pop()))
                    if result.problem:  # which may be the servers': the next cell must not inherit it
                        break
                else:
                    return

    async with asyncio.TaskGroup() as tasks:
        for number in range(min(lanes, len(names))):
            tasks.create_task(lane(number))
