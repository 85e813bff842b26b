"""What the callbacks of event loops cost: the processor time of their thread, however busy the machine is."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


@dataclass
class Callbacks:
    """The costliest callback so far."""

    longest: float = 0.0
    """Seconds of the processor that the loop's thread took for it."""
    what: str = ""


@contextmanager
def watched_callbacks() -> Iterator[Callbacks]:
    """Measures each callback that a loop runs meanwhile."""
    seen, run = Callbacks(), asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        if (took := time.thread_time() - began) > seen.longest:
            seen.longest, seen.what = took, repr(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", measured)
        yield seen
