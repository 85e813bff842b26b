"""A run's dataset in the store: written by who starts it, or taken from its environment."""

from collections.abc import Sequence
from itertools import count

from clotho.entries.items import DrawnItem, Item, ItemChunk
from clotho.environment import Environment
from clotho.errors import InvalidInput
from clotho.identifiers import drawn_key, items_key
from clotho.journal import Journal

CHUNK = 100
"""Items per manifest entry."""


async def write_items(journal: Journal, run: str, items: Sequence[Item]) -> None:
    """Make `items` the run's dataset; raises InvalidInput if the run has another one."""
    for number in range(0, len(items), CHUNK):
        chunk = ItemChunk(items=tuple(items[number : number + CHUNK]))
        if await journal.write(items_key(run, number // CHUNK), chunk) != chunk:
            raise InvalidInput(
                f"run {run} exists with other items; give the same file or choose another --run"
            )


async def enumerate_items(journal: Journal, run: str, environment: Environment, wanted: int) -> int:
    """Take items from the environment until the run has `wanted`; returns how many it has, fewer if they ran out.

    What an earlier call wrote stays as it is: the environment is asked for those items again and must
    hand them out in the same order.
    """
    skipped = 0
    for number in count():
        if number * CHUNK >= wanted:
            return wanted
        stored = await journal.read(items_key(run, number), ItemChunk)
        if stored is None:
            await _draw(environment, skipped)
            skipped = 0
            stored = await journal.write(
                items_key(run, number), ItemChunk(items=await _draw(environment, CHUNK))
            )
        else:
            skipped += CHUNK
        if len(stored.items) < CHUNK:
            return min(wanted, number * CHUNK + len(stored.items))
    raise AssertionError("unreachable")


async def _draw(environment: Environment, number: int) -> tuple[Item, ...]:
    """The next `number` items, fewer where the dataset ends."""
    items: list[Item] = []
    while len(items) < number and (item := await environment.get_next_item()) is not None:
        items.append(item)
    return tuple(items)


async def read_item(journal: Journal, run: str, index: int) -> Item:
    """Of a run whose items were enumerated, or drawn one at a time."""
    chunk = await journal.read(items_key(run, index // CHUNK), ItemChunk)
    if chunk is None:
        return (await journal.require(drawn_key(run, index), DrawnItem)).item
    return chunk.items[index % CHUNK]
