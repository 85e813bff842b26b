"""An author's `collect_trajectories`: every branch group passes through it, one at a time."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

Group = dict[str, Any]
Collected = tuple[Group | list[Group] | None, list[Any]]


class _BranchGroups:
    """A group's branch groups, and which of them the hook is called for."""

    def __init__(self) -> None:
        self.groups: list[Group] | None = None
        self.number = 0


_current: ContextVar[_BranchGroups | None] = ContextVar("branch_groups", default=None)


async def branch_groups_through(hook: Callable[[Any], Awaitable[Collected]], item: Any) -> Collected:
    """The item's branch groups as `hook` changes them, and the items that it adds to the backlog.

    The hook is called for each branch group, since one that expects a single group may ignore a list of them.
    None for one of them withholds all.
    """
    branch_groups = _BranchGroups()
    _current.set(branch_groups)
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
    branch_groups = _current.get()
    if branch_groups is None:
        return await collect()
    further: list[Any] = []
    if branch_groups.groups is None:
        found, further = await collect()
        branch_groups.groups = found if isinstance(found, list) else [] if found is None else [found]
    return (branch_groups.groups[branch_groups.number] if branch_groups.groups else None), further
