"""The permits that one process has for one model server; requests wait here for one."""

import asyncio
from collections import deque

from clotho.errors import ModelUnavailable
from clotho.models.fair_queue import FairQueue
from clotho.processes.load import ProcessLoad

QUICK_SECONDS = 1.8
"""Seconds of an answer up to which a turn is done in its workflow's process: an attempt there has 2 s."""
WORTHWHILE = 0.25
"""Share of quick answers from which such attempts pay: one costs a quarter of a turn that goes on elsewhere."""
WEIGHT = 0.1
LONGEST_CLOSED_SECONDS = 60.0
LAST_STRAW = 3
"""Failures in a row after which a server counts as down."""
DOWN_SECONDS = 30.0
LEAST_IN_USE = 4
"""Requests of a server that are let in, however far this process is behind: something else may keep it busy."""
BEGIN_SECONDS = 0.02
"""Time between two rollouts that begin: what one costs shows a moment later."""
STOPPING = "the worker stops; another one asks instead"


class Room:
    """At most `most` requests of a process at a time, whichever servers they are for.

    Rollouts begin one after another, and none while the process is behind with those that it has begun.
    """

    def __init__(self, most: int, load: ProcessLoad) -> None:
        self._left = most
        self._load = load
        self._began_at = -BEGIN_SECONDS
        self._gates: deque[Gate] = deque()

    def add(self, gate: "Gate") -> None:
        self._gates.append(gate)

    def take(self) -> bool:
        """Take a place, if one is left."""
        if not self._left:
            return False
        self._left -= 1
        return True

    def may_begin(self, answer_seconds: float, now: float) -> bool:
        """Whether a rollout may begin, with a model that takes `answer_seconds` for an answer."""
        return now >= self._began_at + BEGIN_SECONDS and not self._load.is_behind(answer_seconds)

    def begin(self, now: float) -> None:
        """A rollout begins."""
        self._began_at = now

    def hold_back(self, gate: "Gate", holds: bool) -> None:
        """Whether requests wait at `gate` because their rollouts may not begin yet."""
        self._load.hold_back(gate, holds)

    def give_back(self) -> None:
        """Offer the place to the gates, beginning with another one each time."""
        self._left += 1
        # else the first server's requests would take every place of a full process
        self._gates.rotate(-1)
        for gate in tuple(self._gates):
            gate.admit()


class Gate:
    """At most `limit` requests at a time, which take their places in `room`; lowering it ends none.

    A permit and a place are taken together: neither is held while a request waits for the other.
    """

    def __init__(self, limit: int, room: Room) -> None:
        self.limit = limit
        self._room = room
        room.add(self)
        self.in_use = 0
        self.rated = 0
        """Permits whose requests still wait for the rate of their key."""
        self.used_at = 0.0
        self._closed_until = 0.0
        self._waiting = FairQueue()
        self._next_look: asyncio.TimerHandle | None = None
        """At requests that wait until their rollouts may begin."""
        self._failures = 0
        self._down_until = 0.0
        self._answers = 0
        self.quick = 0.0
        """Share of answers of late that took less than QUICK_SECONDS."""
        self.seconds = 0.0
        """Mean time of answers of late; 0 before the first."""

    @property
    def waiting(self) -> int:
        """Requests without a permit."""
        return len(self._waiting)

    @property
    def asking(self) -> int:
        """Requests that the server is answering."""
        return self.in_use - self.rated

    def is_down(self, now: float) -> bool:
        return now < self._down_until

    def takes_new(self, now: float) -> bool:
        """Whether the server isn't down; one that was is first tried with one request."""
        return not (self.is_down(now) or (self._failures >= LAST_STRAW and self.in_use))

    async def acquire(self, run: str, priority: int | None = None, *, begun: bool = False) -> None:
        """Wait for a permit, for a rollout that has `begun`, or has not.

        Raises ModelUnavailable when this process stops first.
        """
        now = asyncio.get_running_loop().time()
        self.used_at = now
        # a permit that is free while others wait is theirs, unless their rollouts may not begin yet
        before = self._waiting.first(begins=not begun)
        if before is None and (begun or self._begins(now)) and self._admits(now):
            self._let_in(begun, now)
            return
        permit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(run, priority, permit, begun=begun)
        self.admit()
        try:
            await permit
        except asyncio.CancelledError:
            # the permit may have been granted just before the cancellation: nobody else would release it
            if permit.done() and not permit.cancelled() and permit.exception() is None:
                self.release()
            self._waiting.remove(permit)
            raise

    def release(self) -> None:
        self.in_use -= 1
        self._room.give_back()

    def _admits(self, now: float) -> bool:
        """Whether there is room for one more, whose place is taken then."""
        return self.in_use < self.limit and now >= self._closed_until and self._room.take()

    def _begins(self, now: float) -> bool:
        """Whether a rollout may make its first request."""
        return self.in_use < LEAST_IN_USE or self._room.may_begin(self.seconds, now)

    def _let_in(self, begun: bool, now: float) -> None:
        self.in_use += 1
        if not begun:
            self._room.begin(now)

    def admit(self) -> None:
        """Let in as many as there is room for."""
        now = asyncio.get_running_loop().time()
        if self._waiting:
            # a server that nobody has used for long is looked at no more, and these wait for the next look
            self.used_at = now
        while (request := self._waiting.first(begins := self._begins(now))) is not None:
            if request.cancelled():
                self._waiting.remove(request)  # its task hasn't run since
            elif self._admits(now):
                self._let_in(request is self._waiting.first(begins=False), now)
                self._waiting.pop(begins).set_result(None)
            else:
                break
        held_back = request is None and bool(self._waiting)
        self._room.hold_back(self, held_back)
        if held_back and self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(BEGIN_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._next_look = None
        self.admit()

    def refuse(self, seconds: float | None) -> None:
        """Lower the limit to what the server still answers; where that is nothing, let none in for `seconds`."""
        # the refused request is one of those being answered; the next look sets the limit anew
        self.limit = min(self.limit, max(1, self.asking - 1))
        if seconds is not None and self.asking <= 1:
            closed = min(seconds, LONGEST_CLOSED_SECONDS)
            self._closed_until = asyncio.get_running_loop().time() + closed

    def fail(self) -> None:
        """Count a failure that is no refusal."""
        self._failures += 1
        if self._failures >= LAST_STRAW:
            self._down_until = asyncio.get_running_loop().time() + DOWN_SECONDS

    def answer(self, seconds: float) -> None:
        """Count an answer and its time."""
        self._failures, self._down_until = 0, 0.0
        self._answers += 1
        weight = WEIGHT if self._answers > 1 else 1.0
        self.quick += weight * ((seconds < QUICK_SECONDS) - self.quick)
        self.seconds += weight * (seconds - self.seconds)

    def stop(self) -> None:
        """Send those that wait to another process."""
        while self._waiting:
            if not (permit := self._waiting.pop(begins=True)).cancelled():
                permit.set_exception(ModelUnavailable(STOPPING))
