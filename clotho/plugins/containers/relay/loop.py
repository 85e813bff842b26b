"""The event loop of all relays of this process, in a thread of its own.

Streams and the clients of platforms belong to it: a caller may be on any loop, in any thread, and be gone by the
time of the answer.
"""

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from clotho.errors import SandboxUnavailable

T = TypeVar("T")

THREADS = 64
"""Threads for clients of platforms that block, as an engine's does."""
BLOCKING_SECONDS = 600.0
"""Seconds after which no thread waits any more for what a platform or a stream was asked: it may never answer."""
IMAGE_SECONDS = 7_200.0
"""The same for an image, which may have to be pulled or kept."""
RENEW_SECONDS = 20.0
"""Seconds for each step of a renewal: those of other leases must not wait for one that commands hold up."""


@cache
def relay_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="sandbox-relays"))
    threading.Thread(target=loop.run_forever, name="sandbox-relays", daemon=True).start()
    return loop


def submit(asked: Coroutine[Any, Any, T]) -> "Future[T]":
    """Run `asked` on that loop."""
    return asyncio.run_coroutine_threadsafe(asked, relay_loop())


def blocking(asked: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
    """Wait for what `submit` runs, from any other thread; BLOCKING_SECONDS unless told otherwise.

    Raises SandboxUnavailable after that time, also where a client ignores that it is cancelled.
    """
    bound = BLOCKING_SECONDS if seconds is None else seconds
    running = submit(asked)
    try:
        return running.result(bound)
    except TimeoutError as error:
        # then it is an error of the platform's own, not the end of this wait
        if running.done():
            raise
        running.cancel()
        raise SandboxUnavailable(f"a sandbox elsewhere gives no answer within {bound:g} s") from error


async def within(seconds: float, what: str, asked: Awaitable[T]) -> T:
    """Raises SandboxUnavailable where it takes longer."""
    try:
        async with asyncio.timeout(seconds) as bound:
            return await asked
    except TimeoutError:
        # then it is an error of the platform's own, not the end of this wait
        if not bound.expired():
            raise
        raise SandboxUnavailable(f"{what} takes more than {seconds:g} s") from None


async def renewal(what: str, asked: Awaitable[T]) -> T:
    """A step of a lease's renewal, within its time."""
    return await within(RENEW_SECONDS, f"renewing the lease of {what}", asked)
