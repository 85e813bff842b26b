"""A run's dataset in the store: given at its start, or taken from its environment.

Items are numbered from 0 and kept in chunks of ITEMS_PER_CHUNK. Where the last chunk was short as the run got more
items, further parts of the chunk hold those that follow.
"""

from collections.abc import Awaitable, Callable, Sequence

from clotho.errors import EnvironmentFailed, InvalidInput
from clotho.identifiers.ids import item_name
from clotho.identifiers.keys import adapter_item_key, items_key, items_prefix
from clotho.journal import Journal
from clotho.rollouts.item import AdapterItem, Item, ItemChunk

ITEMS_PER_CHUNK = 100
"""Items per manifest entry."""
COMPARED_ITEMS = 1_000
"""Items among which alike ones are looked for: to read all would hold up the start of a large run."""

Draw = Callable[[int], Awaitable[tuple[Item, ...]]]
"""Returns that many next items of a dataset, fewer at its end."""


async def write_items(journal: Journal, run: str, items: Sequence[Item]) -> None:
    """Make `items` the run's dataset, or add those that it lacks; raises InvalidInput if the run has others."""
    written = 0
    while written < len(items):
        chunk, start = divmod(written, ITEMS_PER_CHUNK)
        part = tuple(items[written : (chunk + 1) * ITEMS_PER_CHUNK])
        stored = (await journal.write(items_key(run, chunk, start), ItemChunk(items=part))).items
        # a shorter chunk of another start is no fault: the rest goes behind it; an empty one ends a dataset
        if not stored or stored != part[: len(stored)]:
            raise InvalidInput(
                f"run {run} exists with other items; give the same file, with more items after them, "
                "or choose another --run"
            )
        written += len(stored)


async def count_items(journal: Journal, run: str) -> int:
    """The number of items that the run's dataset has in the store, which may be more than are rolled out."""
    if not (keys := await journal.keys(items_prefix(run))):
        return 0
    chunk, _, start = keys[-1].rpartition("/")[2].partition("-")
    # one read: all chunks before the last are full
    last = await journal.read_required(keys[-1], ItemChunk)
    return int(chunk) * ITEMS_PER_CHUNK + int(start or 0) + len(last.items)


async def enumerate_items(journal: Journal, run: str, draw: Draw, wanted: int) -> int:
    """Take items from the dataset until the run has `wanted`; returns how many it has, fewer if they ran out.

    Items that an earlier call wrote are taken again and skipped. Raises EnvironmentFailed where they are others.
    """
    count = await count_items(journal, run)
    # A chunk is short only where the dataset ended.
    ended = count % ITEMS_PER_CHUNK != 0
    if count < wanted and not ended:
        for number in range(count // ITEMS_PER_CHUNK):
            # a dataset is a stream: what comes next is had by drawing what came before
            before = (await journal.read_required(items_key(run, number), ItemChunk)).items
            if (again := await draw(ITEMS_PER_CHUNK))[: len(before)] != before:
                raise EnvironmentFailed(
                    f"the dataset gives other items {number * ITEMS_PER_CHUNK} to "
                    f"{number * ITEMS_PER_CHUNK + len(again) - 1} than before: its order must be reproducible"
                )
    while count < wanted and not ended:
        chunk = ItemChunk(items=await draw(ITEMS_PER_CHUNK))
        stored = await journal.write(items_key(run, count // ITEMS_PER_CHUNK), chunk)
        ended = len(stored.items) < ITEMS_PER_CHUNK
        count += len(stored.items)
    return min(wanted, count)


async def read_item(journal: Journal, run: str, index: int) -> Item:
    """The item with number `index`, of a campaign or of the adapter."""
    number, offset = divmod(index, ITEMS_PER_CHUNK)
    start = 0
    while (part := await journal.read(items_key(run, number, start), ItemChunk)) is not None and part.items:
        if offset < start + len(part.items):
            return part.items[offset - start]
        start += len(part.items)
    # in no chunk: an adapter's run keeps each item by itself
    return (await journal.read_required(adapter_item_key(run, index), AdapterItem)).item


async def items_notice(journal: Journal, run: str, groups: int, asked: int) -> str | None:
    """A sentence for a run with fewer `groups` than were `asked` for, or with several groups of the same item."""
    if groups < asked:
        return f"there are only {groups} items: the run has {groups} groups, not {asked}"
    chunks = (await journal.keys(items_prefix(run)))[: COMPARED_ITEMS // ITEMS_PER_CHUNK]
    items = [item for chunk in await journal.read_many(chunks, ItemChunk) if chunk for item in chunk.items]
    names = [item_name(item) for item in items[:groups]]
    if (different := len(set(names))) == len(names):
        return None
    first = "" if len(names) == groups else "first "
    return f"items repeat: the {first}{len(names)} groups have only {different} different items"
