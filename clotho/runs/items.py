"""A run's dataset in the store: written by who starts it, or taken from its environment."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from clotho.errors import InvalidInput
from clotho.identifiers.run_keys import drawn_key, items_key
from clotho.journal import Journal
from clotho.rollouts.item import DrawnItem, Item, ItemChunk

CHUNK = 100
"""Items per manifest entry."""

Draw = Callable[[int], Awaitable[tuple[Item, ...]]]
"""Hands out the next items of a dataset: so many, or fewer where it ends."""


async def write_items(journal: Journal, run: str, items: Sequence[Item]) -> None:
    """Make `items` the run's dataset; raises InvalidInput if the run has another one."""
    for number in range(0, len(items), CHUNK):
        chunk = ItemChunk(items=tuple(items[number : number + CHUNK]))
        if await journal.write(items_key(run, number // CHUNK), chunk) != chunk:
            raise InvalidInput(
                f"run {run} exists with other items; give the same file or choose another --run"
            )


async def enumerate_items(journal: Journal, run: str, draw: Draw, wanted: int) -> int:
    """Take items from the dataset until the run has `wanted`; returns how many it has, fewer if they ran out.

    What an earlier call wrote stays as it is: those items are drawn again, and must come in the same order.
    """
    skipped = 0
    for number in count():
        if number * CHUNK >= wanted:
            return wanted
        stored = await journal.read(items_key(run, number), ItemChunk)
        if stored is None:
            await draw(skipped)
            skipped = 0
            stored = await journal.write(items_key(run, number), ItemChunk(items=await draw(CHUNK)))
        else:
            skipped += CHUNK
        if len(stored.items) < CHUNK:
            return min(wanted, number * CHUNK + len(stored.items))
    raise AssertionError("unreachable")


async def read_item(journal: Journal, run: str, index: int) -> Item:
    """Of a run whose items were enumerated, or drawn one at a time."""
    chunk = await journal.read(items_key(run, index // CHUNK), ItemChunk)
    if chunk is None:
        return (await journal.read_required(drawn_key(run, index), DrawnItem)).item
    return chunk.items[index % CHUNK]
