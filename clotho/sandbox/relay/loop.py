"""The event loop of all relays of this process, in a thread of its own.

Streams belong to it, and the clients of platforms: whoever asks may be on any loop, in any thread, and may be gone
by the time of the answer.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def relay_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="sandbox-relays", daemon=True).start()
    return loop


def submit(asked: Coroutine[Any, Any, T]) -> "Future[T]":
    """Run `asked` on that loop."""
    return asyncio.run_coroutine_threadsafe(asked, relay_loop())


def blocking(asked: Coroutine[Any, Any, T]) -> T:
    """Wait for what `submit` runs, from any other thread."""
    return submit(asked).result()
