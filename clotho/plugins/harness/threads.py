"""Work on what a harness sent, beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

SHORT = 1 << 14
"""Bytes that are worked on at once: in any form they take no tenth of a second."""

P = ParamSpec("P")
T = TypeVar("T")


async def beside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` on so many bytes, in a thread unless they are few."""
    if size <= SHORT:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
