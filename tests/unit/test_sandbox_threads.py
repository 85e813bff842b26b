"""A sandbox whose calls hang holds up no other's."""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

import pytest

from clotho.sandbox.threads import THREADS_PER_SANDBOX, with_archives, with_files, with_sandbox
from tests.support import PATIENCE_SECONDS


class Pool(Protocol):
    async def __call__(self, sandbox: str, function: Callable[[], int], /) -> int: ...


@pytest.mark.parametrize("pool", [with_files, with_sandbox, with_archives])
async def test_calls_that_hang_hold_up_their_own_sandbox_only(pool: Pool) -> None:
    release = threading.Event()

    hanging = [asyncio.ensure_future(pool("hung", release.wait)) for _ in range(200)]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await asyncio.gather(*(pool(f"other {n}", int) for n in range(8))) == [0] * 8
    finally:
        release.set()
        await asyncio.gather(*hanging)


async def test_calls_that_were_given_up_count_while_they_hang() -> None:
    release, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        release.wait()

    tasks = [asyncio.create_task(with_files("hung", hang)) for _ in range(50)]
    try:
        await asyncio.to_thread(lambda: [begun.acquire() for _ in range(THREADS_PER_SANDBOX)])
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        later = asyncio.create_task(with_files("hung", int, 1))
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await with_files("other", int, 2) == 2
        assert not later.done() and not begun.acquire(blocking=False)
    finally:
        release.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await later == 1
