"""A run in the store: its manifest, its endpoint and its items."""

from collections.abc import Sequence
from itertools import count

from clotho.entries.group import GroupEntry
from clotho.entries.items import DrawnItem, Item, ItemChunk
from clotho.entries.rollout import EndEntry, LeaseEntry
from clotho.entries.run import Endpoint, RunManifest, difference
from clotho.environment import Environment
from clotho.errors import InvalidInput
from clotho.identifiers import (
    RUNS,
    drawn_key,
    end_key,
    endpoint_prefix,
    group_id,
    items_key,
    items_prefix,
    lease_key,
    manifest_key,
    scored_key,
    served_prefix,
)
from clotho.inference.base import ServedModel, checked_base_url
from clotho.journal import Journal

CHUNK = 100
"""Items per manifest entry."""
SLICE = 500
"""Entries read at once."""


async def open_run(journal: Journal, manifest: RunManifest, endpoint: Endpoint) -> None:
    """Write the run's manifest, or check that it is the one in the store; make `endpoint` the current one.

    Raises InvalidInput with both values of every field that may not change and did.
    """
    checked_base_url(endpoint.base_url)
    stored = await journal.write(manifest_key(manifest.run), manifest)
    if stored.fingerprint != manifest.fingerprint:
        raise InvalidInput(
            f"run {manifest.run} exists with other settings ({difference(manifest, stored)}); "
            "give them again or choose another --run"
        )
    if await read_endpoint(journal, manifest.run) != endpoint:
        await journal.append(endpoint_prefix(manifest.run), endpoint)


async def read_manifest(journal: Journal, run: str) -> RunManifest:
    """Raises InvalidInput for a run that the store doesn't have."""
    if (manifest := await journal.read(manifest_key(run), RunManifest)) is None:
        raise InvalidInput(f"there is no run {run!r} in {journal.store_identity}")
    return manifest


async def list_runs(journal: Journal) -> list[str]:
    """The names of the runs in the store."""
    return [key.removeprefix(RUNS) for key in await journal.keys(RUNS)]


async def read_endpoint(journal: Journal, run: str) -> Endpoint | None:
    return await journal.latest(endpoint_prefix(run), Endpoint)


async def note_served(journal: Journal, run: str, served: ServedModel) -> None:
    """Keep what the run's token-exact server was found to be."""
    if await read_served(journal, run) != served:
        await journal.append(served_prefix(run), served)


async def read_served(journal: Journal, run: str) -> ServedModel | None:
    """What the run's server was last found to be; None before that, and in chat mode."""
    return await journal.latest(served_prefix(run), ServedModel)


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


async def unfinished(journal: Journal, run: str, first: int, last: int) -> list[int]:
    """The items in [first, last) whose groups aren't scored yet."""
    keys = [scored_key(group_id(run, item)) for item in range(first, last)]
    entries = await journal.read_many(keys, GroupEntry)
    return [first + offset for offset, entry in enumerate(entries) if entry is None]


async def scored_groups(journal: Journal, run: str, limit: int | None = None) -> list[tuple[str, GroupEntry]]:
    """The run's finished groups by id, the first `limit` of them."""
    groups = await group_ids(journal, run)
    found: list[tuple[str, GroupEntry]] = []
    for first in range(0, len(groups), SLICE):
        part = groups[first : first + SLICE]
        entries = await journal.read_many([scored_key(group) for group in part], GroupEntry)
        found += [(group, entry) for group, entry in zip(part, entries, strict=True) if entry is not None]
        if limit is not None and len(found) >= limit:
            break
    return found[:limit]


async def group_ids(journal: Journal, run: str) -> list[str]:
    """Of all of the run's groups that may be scored: computed from its items, where they were enumerated.

    The groups of items that were drawn one at a time bear other names: those that are scored are looked for.
    """
    if not (chunks := await journal.keys(items_prefix(run))):
        return [key.removesuffix("/scored") for key in await scored_keys(journal, run)]
    last = await journal.require(chunks[-1], ItemChunk)
    return [group_id(run, item) for item in range((len(chunks) - 1) * CHUNK + len(last.items))]


async def scored_keys(journal: Journal, run: str) -> list[str]:
    return [key for key in await journal.keys(f"{run}/") if key.endswith("/scored") and key.count("/") == 2]


async def read_end(journal: Journal, rollout: str) -> EndEntry | None:
    return await journal.read(end_key(rollout), EndEntry)


async def is_followed(journal: Journal, rollout: str, number: int) -> bool:
    """Whether the rollout's sandbox of lease `number` was lost and followed by another."""
    return await journal.read(lease_key(rollout, number + 1), LeaseEntry) is not None
