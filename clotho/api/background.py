"""The API's own event loop, in a thread: scripts, notebooks and coroutines of any loop call it alike."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")


class Background:
    """A thread that runs coroutines until the process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # daemon: the interpreter's end doesn't wait for what a notebook has left under way
        threading.Thread(target=self._loop.run_forever, name="clotho", daemon=True).start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do `work`, and wait for it. Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            # Ctrl-C ends result() in this thread alone; without a cancel the work would go on in the other
            future.cancel()

    async def acall(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` in that thread, and await it in the caller's loop. A cancel reaches it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


@cache
def background() -> Background:
    return Background()
