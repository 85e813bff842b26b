"""Pauses of runs, groups and rollouts: one numbered log of each run in the store.

An entry holds what it changes, and after some changes one holds all that is paused: pausing a thousand rollouts one
by one writes about as much as their names.

A turn looks there before the model is asked, at most a second after another look (`activities/llm.py`). A paused
rollout rests in an activity that holds no worker's slot (`activities/pauses.py`), until nothing that it is part of
is paused. No rollout has to be told: one that begins later, or is repaired, finds the pause at its next turn.
Calls in flight are finished.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from clotho.identifiers.ids import group_of, is_rollout, run_of, wholes_of
from clotho.identifiers.keys import delivered_key, pause_prefix, scored_key
from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import Delivery
from clotho.rollouts.run import PauseEntry
from clotho.runs.rollouts import read_end

Paused = Mapping[str, str]
"""Run, group or rollout that is paused -> reason."""


class TurnPaused(Exception):
    """A turn may not be sampled now."""


@dataclass(frozen=True)
class Pause:
    """A pause of a run, group or rollout, in seconds since the epoch."""

    name: str
    reason: str
    since: float
    until: float | None = None
    """None while it lasts."""


async def pause(journal: Journal, name: str, reason: str) -> None:
    """Pause a run, group or rollout; what is paused already keeps its first reason."""
    # under the sibling's name: its replacements stay paused, too
    await _change(journal, run_of(name), lambda paused: {wholes_of(name)[0]: reason, **paused})


async def resume(journal: Journal, name: str) -> bool:
    """End the pause of `name` alone; returns whether it was paused."""
    return await _end(journal, name, lambda paused: paused == name)


async def resume_whole(journal: Journal, name: str) -> bool:
    """End the pauses of `name` and of all that is part of it; returns whether there were any."""
    whole = wholes_of(name)[0]
    return await _end(journal, name, lambda paused: paused.startswith(whole) and whole in wholes_of(paused))


async def paused_in(journal: Journal, run: str) -> Paused:
    """Paused parts of `run`, itself included."""
    return (await _read_log(journal, run)).paused


def reason_among(paused: Paused, name: str) -> str | None:
    """The reason why `name`, or something that it is part of, is paused; None if nothing is."""
    return next((paused[whole] for whole in wholes_of(name) if whole in paused), None)


async def reason_for(journal: Journal, name: str) -> str | None:
    """The reason why a run, group or rollout is paused, be it by something that it is part of; None if it isn't."""
    return reason_among(await paused_in(journal, run_of(name)), name)


async def has_ended(journal: Journal, name: str) -> bool:
    """Whether a group or rollout is over for good: scored, or dropped for the trainer."""
    if is_rollout(name):
        return await read_end(journal, name) is not None or await has_ended(journal, group_of(name))
    scored = await journal.read(scored_key(name), GroupEntry)
    return scored is not None or await journal.read(delivered_key(name), Delivery) is not None


async def paused_parts(journal: Journal, run: str) -> Paused:
    """The groups and rollouts of `run` that are paused by themselves and haven't ended."""
    paused = await paused_in(journal, run)
    return {name: paused[name] for name in paused if name != run and not await has_ended(journal, name)}


async def read_pauses(journal: Journal, run: str) -> list[Pause]:
    """All pauses of `run` and its parts so far, in the order in which they began."""
    found: list[Pause] = []
    lasting: dict[str, tuple[str, float]] = {}
    entries = await journal.read_many(await journal.keys(pause_prefix(run)), PauseEntry)
    for entry in filter(None, entries):
        # an entry with all that is paused tells what was resumed by leaving it out
        for name in entry.resumed if entry.changes is not None else lasting.keys() - entry.paused.keys():
            found.append(Pause(name, *lasting.pop(name), until=entry.at))
        for name in entry.paused.keys() - lasting.keys():
            lasting[name] = (entry.paused[name], entry.at)
    found += [Pause(name, *begun) for name, begun in lasting.items()]
    return sorted(found, key=lambda pause: pause.since)


def pauses_of(pauses: Sequence[Pause], name: str) -> list[Pause]:
    """The `pauses` of a run, group or rollout and of what it is part of."""
    return [pause for pause in pauses if pause.name in wholes_of(name)]


async def _end(journal: Journal, name: str, ends: Callable[[str], bool]) -> bool:
    def without(paused: Paused) -> Paused:
        return {each: reason for each, reason in paused.items() if not ends(each)}

    return await _change(journal, run_of(name), without)


async def _change(journal: Journal, run: str, change: Callable[[Paused], Paused]) -> bool:
    """Append an entry with the result of `change`; returns False where it changes nothing."""
    while True:
        log = await _read_log(journal, run)
        if (paused := change(log.paused)) == log.paused:
            return False
        # Only after the entry that was read: of two that change it at once, the second one reads again.
        if await journal.append_after(pause_prefix(run), log.last, log.entry_for(paused)) is not None:
            return True  # else another one was faster, whose entry is to be changed


FEWEST_CHANGES, SHARE_OF_CHANGES = 16, 4
"""Changes between two entries with all that is paused: so many, and a quarter of the names in the first of them.

All such entries then have about five times as many names as were paused, and a reader needs few changes.
"""


@dataclass(frozen=True)
class _Log:
    """The state of a run's pauses after all entries of their log."""

    paused: Paused
    last: int | None = None
    """Number of the last entry."""
    whole: int | None = None
    """Number of the last entry that has all that was paused then."""
    whole_names: int = 0

    def entry_for(self, paused: Paused) -> PauseEntry:
        """The next entry, after which `paused` is what is paused."""
        begun = {name: reason for name, reason in paused.items() if name not in self.paused}
        resumed = tuple(name for name in self.paused if name not in paused)
        if self.last is not None and self.whole is not None:
            few = self.last - self.whole < max(FEWEST_CHANGES, self.whole_names // SHARE_OF_CHANGES)
            if few and len(begun) + len(resumed) < len(paused):
                return PauseEntry(paused=begun, resumed=resumed, changes=self.whole, at=time.time())
        return PauseEntry(paused=dict(paused), at=time.time())


async def _read_log(journal: Journal, run: str) -> _Log:
    prefix = pause_prefix(run)
    if (last := await journal.last_number(prefix)) is None:
        return _Log({})
    (entry,) = await journal.read_numbered(prefix, [last], PauseEntry)
    if entry.changes is None:
        return _Log(entry.paused, last, last, len(entry.paused))
    whole, *changes = await journal.read_numbered(prefix, range(entry.changes, last + 1), PauseEntry)
    paused = dict(whole.paused)
    for change in changes:
        for name in change.resumed:
            del paused[name]
        paused |= change.paused
    return _Log(paused, last, entry.changes, len(whole.paused))
