"""The permits of one process for one model server: requests wait for one here, in their order."""

import asyncio
from collections import deque

from clotho.errors import ModelUnavailable

LEAST_ANSWERS = 20
"""Answers before their times say anything."""
SPARE_TOKENS = 16
"""Tokens by which short answers count as longer: they take time of their own."""
WEIGHT, DRIFT = 0.1, 1.001
LONGEST_CLOSED_SECONDS = 60.0
LAST_STRAW = 3
"""Failures in a row after which a server counts as down."""
DOWN_SECONDS = 30.0
STOPPING = "the worker stops; another one asks instead"


class Gate:
    """At most `limit` requests at a time; lowering it ends none."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0
        self.refused = 0
        """Requests that the server has refused for being too many, since this process began."""
        self.rated = 0
        """Permits whose requests still wait for the rate of their key."""
        self.used_at = 0.0
        self._closed_until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._failures = 0
        self._down_until = 0.0
        self._answers = 0
        self.recent_seconds: float | None = None
        """Seconds that answers took of late; None before the first one."""
        self._recent: float | None = None
        self._best = float("inf")

    @property
    def waiting(self) -> int:
        """Requests without a permit."""
        return len(self._waiting)

    @property
    def asking(self) -> int:
        """Requests that the server is answering."""
        return self.in_use - self.rated

    @property
    def slowness(self) -> float:
        """The time for a token, relative to the shortest seen."""
        if self._recent is None or self._answers < LEAST_ANSWERS:
            return 1.0
        return self._recent / self._best

    def is_down(self, now: float) -> bool:
        return now < self._down_until

    def takes_new(self, now: float) -> bool:
        """Whether the server isn't down; one that was is first tried with one request."""
        return not (self.is_down(now) or (self._failures >= LAST_STRAW and self.in_use))

    async def acquire(self) -> None:
        """Wait for a permit. Raises ModelUnavailable when this process stops first."""
        now = asyncio.get_running_loop().time()
        self.used_at = now
        if not self._waiting and self.in_use < self.limit and now >= self._closed_until:
            self.in_use += 1
            return
        permit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(permit)
        try:
            await permit
        except asyncio.CancelledError:
            if permit.done() and not permit.cancelled() and permit.exception() is None:
                self.release()
            elif permit in self._waiting:
                self._waiting.remove(permit)
            raise

    def release(self) -> None:
        self.in_use -= 1
        self.admit()

    def admit(self) -> None:
        """Let in as many as there is room for."""
        now = asyncio.get_running_loop().time()
        if self._waiting:
            self.used_at = now
        while self._waiting and self.in_use < self.limit and now >= self._closed_until:
            permit = self._waiting.popleft()
            if not permit.done():
                self.in_use += 1
                permit.set_result(None)

    def refuse(self, seconds: float | None) -> None:
        """Let no more in than are being answered; none at all for `seconds`, if none is and the server says so."""
        self.limit = min(self.limit, max(1, self.asking - 1))
        if seconds is not None and self.asking <= 1:
            closed = min(seconds, LONGEST_CLOSED_SECONDS)
            self._closed_until = asyncio.get_running_loop().time() + closed

    def fail(self) -> None:
        """Count a failure that is no refusal."""
        self._failures += 1
        if self._failures >= LAST_STRAW:
            self._down_until = asyncio.get_running_loop().time() + DOWN_SECONDS

    def answer(self, seconds: float, tokens: int) -> None:
        """Count an answer and its time."""
        self._failures, self._down_until = 0, 0.0
        each = seconds / (tokens + SPARE_TOKENS)
        self._answers += 1
        self._recent = _moved(self._recent, each)
        self.recent_seconds = _moved(self.recent_seconds, seconds)
        self._best = min(self._best * DRIFT, max(self._recent, 1e-9))

    def stop(self) -> None:
        """Send those that wait to another process."""
        while self._waiting:
            permit = self._waiting.popleft()
            if not permit.done():
                permit.set_exception(ModelUnavailable(STOPPING))


def _moved(average: float | None, value: float) -> float:
    """The moving average after `value`."""
    return value if average is None else (1 - WEIGHT) * average + WEIGHT * value
