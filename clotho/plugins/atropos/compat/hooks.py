"""An author's hooks: `collect_trajectory` sees every rollout's row, `collect_trajectories` every branch group."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from clotho.errors import InvalidInput

PER_ROW = (
    "tokens",
    "masks",
    "scores",
    "advantages",
    "ref_logprobs",
    "inference_logprobs",
    "messages",
    "overrides",
    "images",
)
"""The fields of a ScoredDataGroup that hold one value for each row: a row has them by the same names."""

Row = dict[str, Any]
Hook = Callable[[Any], Awaitable[tuple[Row | None, list[Any]]]]

_current: ContextVar[Row] = ContextVar("row")


def current_row() -> Row:
    """The row that a hook was called for. Raises InvalidInput outside of such a call."""
    try:
        return _current.get()
    except LookupError:
        raise InvalidInput(
            "collect_trajectory has no rollout to return: it is called for the rows of finished groups; "
            "HermesAgentLoop runs manual rollouts"
        ) from None


async def rows_through(
    hook: Hook, groups: dict[str, Any] | list[dict[str, Any]], item: Any
) -> tuple[Any, list[Any]]:
    """The branch groups as `hook` changes them, and the items that it adds to the backlog.

    The hook sees every rollout once, in its row of the first branch group; its scores count in all of them. None
    for one row withholds the group.
    """
    first, *others = groups if isinstance(groups, list) else [groups]
    results = await asyncio.gather(*(_through(hook, row, item) for row in _rows(first)))
    further = [each for _, more in results for each in more]
    rows = [row for row, _ in results if row is not None]
    if len(rows) < len(results):
        return None, further
    first |= {name: [row[name] for row in rows] for name in PER_ROW if name in rows[0]}
    for branch_group in others:
        branch_group["scores"] = list(first["scores"])
    return ([first, *others] if others else first), further


def _rows(group: dict[str, Any]) -> list[Row]:
    given = [name for name in PER_ROW if group.get(name) is not None]
    return [
        dict(zip(given, values, strict=True)) for values in zip(*(group[name] for name in given), strict=True)
    ]


async def _through(hook: Hook, row: Row, item: Any) -> tuple[Row | None, list[Any]]:
    # seen by this call alone: gather runs each in a task with a context of its own
    _current.set(row)
    return await hook(item)


Group = dict[str, Any]
Collected = tuple[Group | list[Group] | None, list[Any]]


class _BranchGroups:
    """A group's branch groups, and which of them the hook is called for."""

    def __init__(self) -> None:
        self.groups: list[Group] | None = None
        self.number = 0


_branch_groups: ContextVar[_BranchGroups | None] = ContextVar("branch_groups", default=None)


async def branch_groups_through(hook: Callable[[Any], Awaitable[Collected]], item: Any) -> Collected:
    """The item's branch groups as `hook` changes them, and the items that it adds to the backlog.

    The hook is called for each branch group, since one that expects a single group may ignore a list of them.
    None for one of them withholds all.
    """
    branch_groups = _BranchGroups()
    _branch_groups.set(branch_groups)
    kept: list[Group] = []
    further: list[Any] = []
    while True:
        group, more = await hook(item)
        further += more
        if group is None:
            return None, further
        kept += group if isinstance(group, list) else [group]
        branch_groups.number += 1
        if branch_groups.number >= len(branch_groups.groups or ()):
            return (kept[0] if len(kept) == 1 else kept), further


async def this_branch_group(collect: Callable[[], Awaitable[Collected]]) -> Collected:
    """The branch group that a hook is called for; `collect` gives all of them, and is called once."""
    branch_groups = _branch_groups.get()
    if branch_groups is None:
        return await collect()
    further: list[Any] = []
    if branch_groups.groups is None:
        found, further = await collect()
        branch_groups.groups = found if isinstance(found, list) else [] if found is None else [found]
    return (branch_groups.groups[branch_groups.number] if branch_groups.groups else None), further
