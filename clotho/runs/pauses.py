"""The pause of a run: an entry in a numbered log of the store, which turns look up.

`sample_turn` (`activities/llm.py`) reads it before it asks the model, at most a second old, and returns None while
the run is paused. The rollout then waits in an activity that holds no worker's slot (`activities/pauses.py`), and
the campaign starts no groups. A single group or rollout is paused by updates instead (`workflows/pausing.py`),
which `Operations` sends to the group and each of its rollouts. Calls in flight are finished.
"""

import time
from dataclasses import dataclass
from itertools import zip_longest

from clotho.identifiers.run_keys import pause_prefix
from clotho.journal import Journal
from clotho.rollouts.run import PauseEntry


class RunPaused(Exception):
    """A turn may not be sampled now."""


@dataclass(frozen=True)
class Pause:
    """A pause of a run, in seconds since the epoch."""

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


async def pauses_of(journal: Journal, run: str) -> list[Pause]:
    """The pauses of `run` so far, in order, without those whose times aren't known."""
    entries = await journal.read_many(await journal.keys(pause_prefix(run)), PauseEntry)
    changes = [entry for entry in entries if entry is not None]
    found = []
    for change, following in zip_longest(changes, changes[1:]):
        if change.paused and change.at is not None:
            found.append(Pause(change.reason, change.at, following.at if following is not None else None))
    return found
