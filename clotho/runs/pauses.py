"""Whether a run is paused: numbered entries in the store, of which the last counts."""

from clotho.identifiers.run_keys import pause_prefix
from clotho.journal import Journal
from clotho.rollouts.run import PauseEntry


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
