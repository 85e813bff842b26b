"""Limits of requests and tokens a minute, as providers have them for each key."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from clotho.errors import ModelUnavailable
from clotho.models.gate import STOPPING
from clotho.worker_settings import RateLimit

BURST_SECONDS = 5.0
"""Time whose requests and tokens may be used at once."""
WEIGHT = 0.1
LOOK_SECONDS = 1.0


class Bucket:
    """Counts what one limit leaves for now; callers give the share of the limit, which may change."""

    def __init__(self, per_minute: int, now: float) -> None:
        self._per_second = per_minute / 60
        # not full: processes that start together would use that many bursts in their first minute
        self._left = 1.0
        self._filled = now

    def seconds_until(self, amount: float, share: float, now: float) -> float:
        """Seconds until `amount`, or all that it holds if that is less, may be used."""
        most = self._most(share)
        self._left = min(most, self._left + share * self._per_second * (now - self._filled))
        self._filled = now
        return max(0.0, (min(amount, most) - self._left) / (share * self._per_second))

    def take(self, amount: float) -> None:
        """Use `amount`; what isn't there is waited for later."""
        self._left -= amount

    def _most(self, share: float) -> float:
        return max(1.0, share * self._per_second * BURST_SECONDS)


class RateMeter:
    """Meters what one process uses of a key's limits; `share` returns its share of them.

    The tokens of an answer are known afterwards: at first as many are taken as recent answers had.
    """

    def __init__(self, limit: RateLimit, share: Callable[[], float], now: float) -> None:
        self._share = share
        self._requests = self._bucket(limit.requests_per_minute, now)
        self._tokens = self._bucket(limit.tokens_per_minute, now)
        self._usual_tokens = 0.0
        self._queue = asyncio.Lock()
        self._stopped = asyncio.Event()

    async def wait(self) -> float:
        """Wait until a request may begin, in the order of calls; returns the tokens that are taken for it.

        Raises ModelUnavailable when this process stops.
        """
        async with self._queue:
            loop = asyncio.get_running_loop()
            while (seconds := self.take_request(loop.time())) > 0:
                # looks again after LOOK_SECONDS, as the share may have changed; 10 ms at least, as a rounded sum
                # may be short by next to nothing
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), min(LOOK_SECONDS, max(0.01, seconds)))
                    raise ModelUnavailable(STOPPING)
            return self._usual_tokens

    def take_request(self, now: float) -> float:
        """Count a request that begins now, and return 0; or return the seconds until one may begin."""
        needed = [(self._requests, 1.0), (self._tokens, self._usual_tokens)]
        limited = [(bucket, amount) for bucket, amount in needed if bucket is not None]
        share = self._share()
        if seconds := max(
            (bucket.seconds_until(amount, share, now) for bucket, amount in limited), default=0.0
        ):
            return seconds
        for bucket, amount in limited:
            bucket.take(amount)
        return 0.0

    def settle(self, taken: float, tokens: int) -> None:
        """Count the tokens of a request that has ended, for which `taken` were taken."""
        if self._tokens is not None:
            self._tokens.take(tokens - taken)
        if tokens:
            self._usual_tokens += (WEIGHT if self._usual_tokens else 1.0) * (tokens - self._usual_tokens)

    def stop(self) -> None:
        """Send requests that wait to other processes."""
        self._stopped.set()

    def _bucket(self, per_minute: int | None, now: float) -> Bucket | None:
        return None if per_minute is None else Bucket(per_minute, now)
