"""A bound on how often a cloud is asked for something."""

import asyncio
import time


class Pace:
    """Lets `per_second` calls a second pass, evenly spaced, in the order in which they came."""

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._next = 0.0

    async def turn(self) -> None:
        """Return when it is the caller's turn. One that is cancelled meanwhile leaves its turn unused."""
        now = time.monotonic()
        mine = max(self._next, now)
        self._next = mine + self._interval
        await asyncio.sleep(mine - now)
