"""Requests that wait for a permit: each run has its share of the permits, however many requests it has queued.

Within a run, those of rollouts that have begun come first: few rollouts that end soon hold fewer sandboxes, leave
their conversations in the server's cache, and bring a trainer what its current model wrote.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

USUAL_PRIORITY, LEAST_PRIORITY = 3, 5


@dataclass
class Line:
    """The requests of one run: those of begun rollouts, and of others, each in their order."""

    passed: float
    """Requests that were let in, over the run's weight: the run with the least is next."""
    begun: deque[asyncio.Future[None]] = field(default_factory=deque)
    others: deque[asyncio.Future[None]] = field(default_factory=deque)
    weight: int = 1

    def next(self, begins: bool) -> deque[asyncio.Future[None]]:
        """Where its next request is, if any waits; unless a rollout `begins`, that of one that has begun."""
        return self.others if begins and not self.begun else self.begun


class FairQueue:
    """Stride scheduling by run: that of priority 1 is let in five times as often as that of priority 5."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._passed = 0.0
        """That of the run whose request was let in last: who waited for nothing meanwhile has saved nothing."""

    def __len__(self) -> int:
        return sum(len(line.begun) + len(line.others) for line in self._lines.values())

    def add(self, run: str, priority: int | None, request: asyncio.Future[None], *, begun: bool) -> None:
        """`begun` tells whether its rollout has."""
        line = self._lines.setdefault(run, Line(self._passed))
        line.passed = max(line.passed, self._passed)
        line.weight = 1 + LEAST_PRIORITY - (priority or USUAL_PRIORITY)
        (line.begun if begun else line.others).append(request)

    def remove(self, request: asyncio.Future[None]) -> None:
        """Take out a request that no longer waits, if it is there."""
        for line in self._lines.values():
            for requests in (line.begun, line.others):
                if request in requests:
                    requests.remove(request)

    def first(self, begins: bool) -> asyncio.Future[None] | None:
        """The next request, if any waits; unless a rollout `begins`, that of one that has begun."""
        line = self._next_line(begins)
        return None if line is None else line.next(begins)[0]

    def pop(self, begins: bool) -> asyncio.Future[None]:
        """Take the first request out, and let it in."""
        line = self._next_line(begins)
        if line is None:
            raise IndexError("no request waits")
        self._passed = line.passed
        line.passed += 1 / line.weight
        request = line.next(begins).popleft()
        for run, each in list(self._lines.items()):
            # a run that is ahead stays known: forgotten, it would be let in anew as if it had had nothing
            if not each.next(begins=True) and each.passed <= self._passed:
                del self._lines[run]
        return request

    def _next_line(self, begins: bool) -> Line | None:
        waiting = (line for line in self._lines.values() if line.next(begins))
        return min(waiting, key=lambda line: line.passed, default=None)
