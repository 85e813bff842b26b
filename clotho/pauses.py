"""Whether a run is paused: numbered entries in the store, of which the last counts."""

import asyncio

from clotho.entries import PauseEntry
from clotho.identifiers import pause_prefix
from clotho.journal import Journal

FRESH_SECONDS = 1.0
"""How long an answer is given again: many turns ask, and one listing a second answers them all."""


class RunPaused(Exception):
    """A turn may not be sampled now."""


async def pause_run(journal: Journal, run: str, reason: str) -> None:
    """Have all turns of `run` wait at their boundaries; a run that is paused keeps its first reason."""
    if await paused_because(journal, run) is None:
        await journal.append(pause_prefix(run), PauseEntry(paused=True, reason=reason))


async def resume_run(journal: Journal, run: str) -> bool:
    """Let `run` go on; returns whether it was paused."""
    if await paused_because(journal, run) is None:
        return False
    await journal.append(pause_prefix(run), PauseEntry(paused=False))
    return True


async def paused_because(journal: Journal, run: str) -> str | None:
    """Why `run` is paused; None if it isn't."""
    entry = await journal.latest(pause_prefix(run), PauseEntry)
    return entry.reason if entry is not None and entry.paused else None


class Pauses:
    """The answers of one process, each at most a second old."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._answers: dict[str, tuple[float, asyncio.Task[str | None]]] = {}

    async def paused(self, run: str) -> bool:
        return await self.because(run) is not None

    async def because(self, run: str) -> str | None:
        """As `paused_because`, with one look at the store for all who ask at the same time."""
        now = asyncio.get_running_loop().time()
        asked, answer = self._answers.get(run, (now, None))
        stale = now - asked > FRESH_SECONDS
        if answer is None or stale or (answer.done() and answer.exception() is not None):
            answer = asyncio.create_task(paused_because(self._journal, run))
            self._answers[run] = (now, answer)
        return await asyncio.shield(answer)
