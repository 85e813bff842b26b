"""What the callbacks of event loops cost: the processor time of their thread, however busy the machine is."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest


@dataclass
class Callbacks:
    """The costliest callback, once they are no longer watched."""

    longest: float = 0.0
    """Seconds of the processor that the loop's thread took for it."""
    what: str = ""


@asynccontextmanager
async def watched_callbacks() -> AsyncIterator[Callbacks]:
    """Measures each callback that a loop runs meanwhile, those in which the caller's own steps run included."""
    seen, run = Callbacks(), asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        if (took := time.thread_time() - began) > seen.longest:
            seen.longest, seen.what = took, repr(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", measured)
        await asyncio.sleep(0)  # the callback that runs now isn't measured: the next one is
        yield seen
        await asyncio.sleep(0)  # and the last one has to end
