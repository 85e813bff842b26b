"""Pauses, of which that of a run is an entry in a numbered log of the store, which turns look up.

`sample_turn` (`activities/llm.py`) reads it before it asks the model, at most a second old, and returns None while
the run is paused. The rollout then waits in an activity that holds no worker's slot (`activities/pauses.py`), and
the campaign starts no groups. A single group or rollout is paused by updates instead (`workflows/pausing.py`),
which `Operations` sends to the group and each of its rollouts. Such a rollout writes down how long it waited, once
it is resumed. Calls in flight are finished.
"""

import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest

from clotho.identifiers.ids import run_of
from clotho.identifiers.rollout_keys import own_waits_prefix
from clotho.identifiers.run_keys import pause_prefix, waits_prefix
from clotho.journal import Journal
from clotho.rollouts.rollout import WaitEntry
from clotho.rollouts.run import PAUSED_BY_HAND, PauseEntry


class RunPaused(Exception):
    """A turn may not be sampled now."""


@dataclass(frozen=True)
class Pause:
    """A pause of a run, or the wait of a rollout that was paused, in seconds since the epoch."""

    reason: str
    since: float
    until: float | None
    """None while it lasts."""


async def pause_run(journal: Journal, run: str, reason: str) -> None:
    """Pause all turns of `run` at their boundaries; a paused run keeps its first reason."""
    if await paused_because(journal, run) is None:
        await journal.append(pause_prefix(run), PauseEntry(paused=True, reason=reason, at=time.time()))


async def resume_run(journal: Journal, run: str) -> bool:
    """Resume `run`; returns whether it was paused."""
    if await paused_because(journal, run) is None:
        return False
    await journal.append(pause_prefix(run), PauseEntry(paused=False, at=time.time()))
    return True


async def paused_because(journal: Journal, run: str) -> str | None:
    """The reason for which `run` is paused; None if it isn't."""
    entry = await journal.latest(pause_prefix(run), PauseEntry)
    return entry.reason if entry is not None and entry.paused else None


async def waits_of(journal: Journal, run: str) -> dict[str, list[Pause]]:
    """The waits of the run's rollouts that were paused themselves, or with their group; by rollout."""
    found = defaultdict(list)
    for key, pause in await _waits(journal, waits_prefix(run)):
        group, rollout, *_ = key.removeprefix(waits_prefix(run)).split("/")
        found[f"{run}/{group}/{rollout}"].append(pause)
    return found


async def pauses_of_rollout(journal: Journal, rollout: str) -> list[Pause]:
    """The pauses of the rollout's run, and the rollout's own waits."""
    own = await _waits(journal, own_waits_prefix(rollout))
    return [*await pauses_of(journal, run_of(rollout)), *(pause for _, pause in own)]


async def _waits(journal: Journal, prefix: str) -> list[tuple[str, Pause]]:
    keys = await journal.keys(prefix)
    entries = await journal.read_many(keys, WaitEntry)
    return [
        (key, Pause(PAUSED_BY_HAND, entry.since, entry.until))
        for key, entry in zip(keys, entries, strict=True)
        if entry is not None
    ]


async def pauses_of(journal: Journal, run: str) -> list[Pause]:
    """The pauses of `run` so far, in order, without those whose times aren't known."""
    entries = await journal.read_many(await journal.keys(pause_prefix(run)), PauseEntry)
    changes = [entry for entry in entries if entry is not None]
    found = []
    for change, following in zip_longest(changes, changes[1:]):
        if change.paused and change.at is not None:
            found.append(Pause(change.reason, change.at, following.at if following is not None else None))
    return found
