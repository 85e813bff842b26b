"""A run's dataset in the store: given at its start, or taken from its environment."""

from collections.abc import Awaitable, Callable, Sequence

from clotho.errors import InvalidInput
from clotho.identifiers.run_keys import adapter_item_key, items_key
from clotho.journal import Journal
from clotho.rollouts.item import AdapterItem, Item, ItemChunk

ITEMS_PER_CHUNK = 100
"""Items per manifest entry."""

Draw = Callable[[int], Awaitable[tuple[Item, ...]]]
"""Returns that many next items of a dataset, fewer at its end."""


async def write_items(journal: Journal, run: str, items: Sequence[Item]) -> None:
    """Make `items` the run's dataset; raises InvalidInput if the run has another one."""
    for number in range(0, len(items), ITEMS_PER_CHUNK):
        chunk = ItemChunk(items=tuple(items[number : number + ITEMS_PER_CHUNK]))
        if await journal.write(items_key(run, number // ITEMS_PER_CHUNK), chunk) != chunk:
            raise InvalidInput(
                f"run {run} exists with other items; give the same file or choose another --run"
            )


async def enumerate_items(journal: Journal, run: str, draw: Draw, wanted: int) -> int:
    """Take items from the dataset until the run has `wanted`; returns how many it has, fewer if they ran out.

    Items that an earlier call wrote are taken again and skipped: they must come in the same order.
    """
    skipped = 0
    for first in range(0, wanted, ITEMS_PER_CHUNK):
        key = items_key(run, first // ITEMS_PER_CHUNK)
        stored = await journal.read(key, ItemChunk)
        if stored is None:
            await draw(skipped)
            skipped = 0
            stored = await journal.write(key, ItemChunk(items=await draw(ITEMS_PER_CHUNK)))
        else:
            skipped += ITEMS_PER_CHUNK
        if len(stored.items) < ITEMS_PER_CHUNK:
            return min(wanted, first + len(stored.items))
    return wanted


async def read_item(journal: Journal, run: str, index: int) -> Item:
    """The item with number `index`, of a campaign or of the adapter."""
    chunk = await journal.read(items_key(run, index // ITEMS_PER_CHUNK), ItemChunk)
    if chunk is None:
        return (await journal.read_required(adapter_item_key(run, index), AdapterItem)).item
    return chunk.items[index % ITEMS_PER_CHUNK]
