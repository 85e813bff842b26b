"""Waiting for a condition, for as long as it may take to hold."""

import asyncio
import time
from collections.abc import Awaitable, Callable

HIT_SECONDS = 180.0
POLL_SECONDS = 0.02


class NotReached(Exception):
    """It never came to what was waited for."""


async def until(
    reached: Callable[[], Awaitable[bool]],
    what: str,
    seconds: float = HIT_SECONDS,
    poll: float = POLL_SECONDS,
) -> None:
    deadline = time.monotonic() + seconds
    while not await reached():
        if time.monotonic() > deadline:
            raise NotReached(f"never came to {what}")
        await asyncio.sleep(poll)
