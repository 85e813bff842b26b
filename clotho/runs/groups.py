"""A run's groups in the store."""

from collections.abc import AsyncIterator, Sequence

from clotho.identifiers.group_keys import scored_key
from clotho.identifiers.ids import group_id
from clotho.identifiers.run_keys import campaign_request_prefix
from clotho.journal import Journal
from clotho.rollouts.campaign import CampaignRequest, Unfinished, UnfinishedRequest
from clotho.rollouts.group import GroupEntry
from clotho.runs.items import count_items

ENTRIES_PER_READ = 500
"""Entries read at once."""


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
    """The run's finished groups by id, the first `limit` of them."""
    found: list[tuple[str, GroupEntry]] = []
    async for scored in scored_among(journal, await group_ids(journal, run)):
        found.append(scored)
        if len(found) == limit:
            break
    return found


async def scored_among(journal: Journal, groups: Sequence[str]) -> AsyncIterator[tuple[str, GroupEntry]]:
    """The scored groups among `groups`, in their order."""
    for first in range(0, len(groups), ENTRIES_PER_READ):
        part = groups[first : first + ENTRIES_PER_READ]
        entries = await journal.read_many([scored_key(group) for group in part], GroupEntry)
        for group, entry in zip(part, entries, strict=True):
            if entry is not None:
                yield group, entry


async def group_ids(journal: Journal, run: str) -> list[str]:
    """Ids of all groups of the run that may be scored: computed from its items, where they were enumerated.

    The groups of items that were drawn one at a time bear other names: those that are scored are looked for.
    """
    if items := await count_items(journal, run):
        return [group_id(run, item) for item in range(items)]
    return [key.removesuffix("/scored") for key in await scored_keys(journal, run)]


async def target_groups(journal: Journal, run: str) -> int | None:
    """The number of groups that the run is to have; None where an adapter draws them one by one."""
    order = await journal.latest(campaign_request_prefix(run), CampaignRequest)
    if order is None:
        return None
    enumerated = len(await group_ids(journal, run))
    return min(order.groups, enumerated) if enumerated else order.groups


async def scored_keys(journal: Journal, run: str) -> list[str]:
    return [key for key in await journal.keys(f"{run}/") if key.endswith("/scored") and key.count("/") == 2]
