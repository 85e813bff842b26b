"""A run's groups in the store."""

from collections.abc import AsyncIterator, Sequence
from typing import overload

from clotho.identifiers.ids import group_id
from clotho.identifiers.keys import campaign_request_prefix, scored_key
from clotho.journal import Journal
from clotho.rollouts.campaign import CampaignRequest, Unfinished, UnfinishedRequest
from clotho.rollouts.group import GroupEntry
from clotho.runs.items import count_items

ENTRIES_PER_READ = 500
"""Entries read at once."""
LARGE_ITEMS = 10_000
"""Items from which a run's scored groups aren't counted one by one to be shown."""
LONGEST_GAP = 1_000
"""Groups without a scored one among them, after which the first scored ones are no longer looked for.

As many may be open at once."""


class EnumeratedGroups(Sequence[str]):
    """The ids of the groups of a run's first `count` items, each made when it is asked for."""

    def __init__(self, run: str, count: int) -> None:
        self._run = run
        self._items = range(count)

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [group_id(self._run, item) for item in self._items[index]]
        return group_id(self._run, self._items[index])


async def unfinished(journal: Journal, request: UnfinishedRequest) -> Unfinished:
    """Look groups up, `at_once` at a time, until some aren't scored or there are no more."""
    found: tuple[int, ...] = ()
    next_group = request.first
    while next_group < request.last and not found:
        items = range(next_group, min(next_group + request.at_once, request.last))
        entries = await journal.read_many(
            [scored_key(group_id(request.run, item)) for item in items], GroupEntry
        )
        found = tuple(item for item, entry in zip(items, entries, strict=True) if entry is None)
        next_group = items.stop
    return Unfinished(items=found, next_group=next_group)


async def scored_groups(journal: Journal, run: str, limit: int | None = None) -> list[tuple[str, GroupEntry]]:
    """The run's scored groups by id; with `limit`, the first so many, up to a gap of LONGEST_GAP groups."""
    groups = await group_ids(journal, run)
    found: list[tuple[str, GroupEntry]] = []
    for first in range(0, len(groups), LONGEST_GAP):
        part = [scored async for scored in scored_among(journal, groups[first : first + LONGEST_GAP])]
        found += part
        # without the end at a gap, all million groups of a run that has just begun would be looked up
        if limit is not None and (len(found) >= limit or not part):
            return found[:limit]
    return found


async def scored_among(journal: Journal, groups: Sequence[str]) -> AsyncIterator[tuple[str, GroupEntry]]:
    """The scored groups among `groups`, in their order."""
    for first in range(0, len(groups), ENTRIES_PER_READ):
        part = groups[first : first + ENTRIES_PER_READ]
        # in parts: each entry holds its rollouts' summaries, and a run may have a million
        entries = await journal.read_many([scored_key(group) for group in part], GroupEntry)
        for group, entry in zip(part, entries, strict=True):
            if entry is not None:
                yield group, entry


async def group_ids(journal: Journal, run: str) -> Sequence[str]:
    """Ids of all groups of the run that may be scored: computed from its items, where they were enumerated.

    An adapter draws items one at a time, and its groups have other names: the scored ones are looked for.
    """
    if items := await count_items(journal, run):
        return EnumeratedGroups(run, items)
    return [key.removesuffix("/scored") for key in await scored_keys(journal, run)]


async def is_large(journal: Journal, run: str) -> bool:
    """Whether the run has too many groups to count the scored ones while a user waits for a command."""
    return await count_items(journal, run) > LARGE_ITEMS


async def target_groups(journal: Journal, run: str) -> int | None:
    """The number of groups that the run is to have; None where an adapter draws them one by one."""
    order = await journal.latest(campaign_request_prefix(run), CampaignRequest)
    if order is None:
        return None
    enumerated = await count_items(journal, run)
    return min(order.groups, enumerated) if enumerated else order.groups


async def scored_keys(journal: Journal, run: str) -> list[str]:
    # run/group/scored: a key below a rollout has more parts
    return [key for key in await journal.keys(f"{run}/") if key.endswith("/scored") and key.count("/") == 2]
