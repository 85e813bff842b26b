"""An author's `collect_trajectories`: every wave of a group passes through it, one at a time."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

Group = dict[str, Any]
Collected = tuple[Group | list[Group] | None, list[Any]]


class _Waves:
    """A group's waves, and which of them the hook is called for."""

    def __init__(self) -> None:
        self.groups: list[Group] | None = None
        self.number = 0


_current: ContextVar[_Waves | None] = ContextVar("waves", default=None)


async def waves_through(hook: Callable[[Any], Awaitable[Collected]], item: Any) -> Collected:
    """The item's waves as `hook` would have them, and what it puts into the backlog; no group where it wants none.

    It is called for each wave, since one that expects a single group may pass over a list of them.
    """
    waves = _Waves()
    _current.set(waves)
    kept: list[Group] = []
    further: list[Any] = []
    while True:
        group, more = await hook(item)
        further += more
        if group is None:
            return None, further
        kept += group if isinstance(group, list) else [group]
        waves.number += 1
        if waves.number >= len(waves.groups or ()):
            return (kept[0] if len(kept) == 1 else kept), further


async def this_wave(collect: Callable[[], Awaitable[Collected]]) -> Collected:
    """The wave that a hook is called for; `collect` gives all of them, and is called once."""
    waves = _current.get()
    if waves is None:
        return await collect()
    further: list[Any] = []
    if waves.groups is None:
        found, further = await collect()
        waves.groups = found if isinstance(found, list) else [] if found is None else [found]
    return (waves.groups[waves.number] if waves.groups else None), further
