"""The watch of a worker process for descriptors, memory and threads that it can no longer have.

A process that leaks one of them goes on to poll, and fails all that it takes from its queues. A new process has
them again, so this one ends, and its supervisor starts another.
"""

import asyncio
import mmap
import os
import threading
import time
from collections.abc import Callable

from clotho.host_failures import described, is_host_failure

PERIOD_SECONDS = 5.0
"""Between two looks."""
SHORT_SECONDS = 60.0
"""A shortage that lasts this long is not a peak of the load."""
PROBED_BYTES = 1 << 20


def shortage() -> str | None:
    """What this process can't have now: a descriptor, memory or a thread."""
    kind = "descriptors"
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
        kind = "memory"
        mmap.mmap(-1, PROBED_BYTES).close()
        kind = "threads"
        probe = threading.Thread(target=int, daemon=True)
        probe.start()
        probe.join()
    except (OSError, MemoryError, RuntimeError) as error:
        if not is_host_failure(error):
            raise
        return f"{kind} ({described(error)})"
    return None


async def lasting_shortage(
    find: Callable[[], str | None] = shortage,
    lasting_seconds: float = SHORT_SECONDS,
    period_seconds: float = PERIOD_SECONDS,
) -> str:
    """Wait for a shortage that each look has found for `lasting_seconds`; returns the last one.

    It looks on the event loop's own thread: another thread may be what can't be had.
    """
    since: float | None = None
    while True:
        found = find()
        if found is None:
            since = None
        elif since is None:
            since = time.monotonic()
        elif time.monotonic() - since >= lasting_seconds:
            return found
        await asyncio.sleep(period_seconds)
