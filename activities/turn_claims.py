"""Which process asks for a turn: the one that the turn before names, or who takes the turn over from it.

In the ordinary case nothing is written. A process that takes a turn over, since the other one is silent or takes no
tasks from here, claims it in the journal first: the other may only be frozen. So a process that others may have
taken for gone since it looked shows that it lives, and claims the turn as well, before it asks.
"""

from dataclasses import dataclass

from temporalio import activity

from activities.claims import BegunElsewhere, WorkClaim, WorkClaims
from clotho.errors import TakenOver
from clotho.identifiers.keys import process_key, turn_claims_prefix, turn_key
from clotho.journal import Journal
from clotho.processes.liveness import Liveness, Presence, boot_seconds
from clotho.rollouts.turn import ChosenProcess, TurnEntry, TurnRequest


@dataclass(frozen=True)
class TurnLook:
    """Whether a turn was claimed when this process looked."""

    claimed: bool
    at: float
    """By `boot_seconds`."""


class TurnClaims:
    """The claims of a process on turns; `queue` is its own, and `liveness` writes its heartbeats."""

    def __init__(self, journal: Journal, presence: Presence, liveness: Liveness, queue: str) -> None:
        self._journal = journal
        self._presence = presence
        self._liveness = liveness
        self._queue = queue
        self._claims = WorkClaims(journal, presence, queue)

    async def served(self, queue: str) -> bool:
        """Whether `queue` is this process's own, or that of another which takes tasks from here."""
        return queue == self._queue or await self._presence.serves(queue)

    async def look(self, request: TurnRequest) -> TurnLook:
        """Look whether the turn was claimed, even if it is this process's own, which may have been frozen."""
        at = boot_seconds()
        # the first claim is enough: who claims after it looks at the others
        first = f"{turn_claims_prefix(request.rollout, request.turn)}{0:06}"
        return TurnLook(await self._journal.read(first, WorkClaim) is not None, at)

    async def begin(self, request: TurnRequest, look: TurnLook, home: str) -> bool:
        """Raise BegunElsewhere where another process may have begun the turn; claim it where that is gone.

        Returns whether it was claimed, in the stead of another. `home` is the queue of the process that may have
        begun it, if the turn before names it.
        """
        if not look.claimed:
            home = home or await self._chosen(request)
            if home in ("", self._queue):
                return False
            if await self._presence.serves(home):
                raise BegunElsewhere(home)
        await self._claims.take(turn_claims_prefix(request.rollout, request.turn))
        return True

    async def require(self, request: TurnRequest, look: TurnLook) -> None:
        """Raise BegunElsewhere where another process has taken the turn over since `look`.

        Raises TakenOver where that has sampled it.
        """
        if not self._liveness.was_silent(look.at):
            return
        await self._liveness.beat()  # first: who looks from now on leaves the turn to this process
        # The rollout may have been sealed, too, with the claims that it had.
        if await self._journal.read(turn_key(request.rollout, request.turn), TurnEntry) is not None:
            raise TakenOver("another process has sampled this turn")
        await self._claims.take(turn_claims_prefix(request.rollout, request.turn))

    async def _chosen(self, request: TurnRequest) -> str:
        """The queue of the process that the workflow has chosen for its first turn, if any."""
        key = process_key(request.rollout, activity.info().workflow_run_id or "")
        chosen = await self._journal.read(key, ChosenProcess)
        return "" if chosen is None else chosen.queue
