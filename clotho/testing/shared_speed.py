"""Work done side by side: the more there is, the slower is each piece, as with requests to one model server."""

import asyncio
import heapq
import math
from collections.abc import Callable
from itertools import count


class SharedSpeed:
    """Work in progress. `speed` takes the number of pieces, and returns how much of each is done in a second."""

    def __init__(self, speed: Callable[[int], float]) -> None:
        self._speed = speed
        self._done = 0.0
        """Work done on what has been here from the start."""
        self._until = 0.0
        self._numbers = count()
        self._left: list[tuple[float, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._left)

    async def work(self, seconds: float) -> None:
        """Do a piece of work that takes `seconds` at a speed of 1."""
        self._advance()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # the number breaks ties: futures have no order
        entry = (self._done + seconds, next(self._numbers), done)
        heapq.heappush(self._left, entry)
        self._plan()
        try:
            await done
        except asyncio.CancelledError:
            if entry in self._left:  # its client has gone
                self._advance()
                self._left.remove(entry)
                heapq.heapify(self._left)
                self._plan()
            raise

    def change(self, speed: Callable[[int], float]) -> None:
        """Go on at another speed."""
        self._advance()
        self._speed = speed
        self._plan()

    def _advance(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._left:
            self._done += (now - self._until) * self._speed(len(self._left))
        self._until = now

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._left:
            seconds = (self._left[0][0] - self._done) / self._speed(len(self._left))
            self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._finish)

    def _finish(self) -> None:
        self._advance()
        # isclose: rounding may leave the first a hair short of its end, for which no timer is short enough
        while self._left and (self._left[0][0] <= self._done or math.isclose(self._left[0][0], self._done)):
            *_, done = heapq.heappop(self._left)
            # cancelled, and not yet taken out
            if not done.done():
                done.set_result(None)
        self._plan()
