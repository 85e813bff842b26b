"""Work that a policy makes as long as it can: the worker's event loop goes on meanwhile, and it ends."""

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

import pytest

from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell
from tests.sandbox.tool_calls import Calls
from tests.support import PATIENCE_SECONDS

pytestmark = needs_root
LONGEST_STALL = 2.5
"""Seconds without a turn of the loop: a heartbeat has three times as long."""
LOOK_SECONDS = 0.05
LONGEST_CALL = 30.0
"""Seconds that it works in all."""
HALF = "".join(f"{n % 97:02}" for n in range(150))
CONFUSING = "\n".join(("ab" * n + "ba" * (150 - n))[:300] for n in range(150))


@asynccontextmanager
async def watched_loop() -> AsyncIterator[None]:
    """Fails where the loop stood still, or the work took too long.

    Time in which the machine lets this process stand still isn't counted: what is counted is the process's work in
    a turn, of any of its threads, and the looks that find the thread of the loop waiting in a call.
    """
    turn, stalls, waits, over = 0, [], Counter[int](), threading.Event()
    loops = threading.get_ident()

    async def watch() -> None:
        nonlocal turn
        while True:
            before = time.process_time()
            await asyncio.sleep(0.01)
            stalls.append(time.process_time() - before)
            turn += 1

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            waits[turn] += not is_idle(sys._current_frames()[loops])

    looking = threading.Thread(target=look)
    looking.start()
    watching, begun = asyncio.create_task(watch()), time.process_time()
    await asyncio.sleep(0)  # its first turn begins before the work
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
        worked = time.process_time() - begun
        await asyncio.sleep(0.02)
    finally:
        watching.cancel()
        over.set()
        looking.join()
    assert max(stalls) < LONGEST_STALL
    assert max(waits.values(), default=0) * LOOK_SECONDS < LONGEST_STALL
    assert worked < LONGEST_CALL


def is_idle(frame: FrameType) -> bool:
    """Whether a loop's thread waits for events alone."""
    caller = frame.f_back
    return caller is not None and (frame.f_code.co_name, caller.f_code.co_name) == ("select", "_run_once")


@pytest.mark.attack("sandbox", "names of files that are slow to compare with one that isn't there")
async def test_a_search_for_similar_names(isolated: Shell) -> None:
    await isolated.run("for n in $(seq 390); do touch $(printf 'ab%.0s' $(seq 120))$n; done")
    async with watched_loop():
        found = await Calls(isolated.sandbox)("read_file", path="ba" * 125)
    assert len(found["similar_files"]) == 5


@pytest.mark.attack("sandbox", "files whose syntax is slow to check")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.toml", "a." * 140_000 + "a=1"),
        ("x.py", "f'" + "{a}" * 95_000 + "'"),
        ("x.py", "a;" * 149_000),
        ("x.json", "[" * 299_000),
        ("short.toml", "a." * 1_900 + "a=1"),
    ],
)
async def test_a_syntax_check(isolated: Shell, name: str, content: str) -> None:
    async with watched_loop():
        written = await Calls(isolated.sandbox)("write_file", path=name, content=content)
    assert written["lint"]["status"] in ("ok", "skipped", "error")


@pytest.mark.attack("sandbox", "patches whose place, or difference, is slow to find")
@pytest.mark.parametrize(
    ("before", "old", "new"),
    [
        (f"{CONFUSING}\n" * 4, CONFUSING[1:][::-1], "x"),
        ("a\n" + f"{HALF}\nb\na\n" * 3_000, f"a\n{HALF[::-1]}\nb", "x"),
        ("x\n" * 400_000, "y\n" * 100 + "x", "z"),
        (
            "\n".join(str(n % 90) for n in range(1_900)),
            "\n".join(str(n % 90) for n in range(1_900)),
            "\n".join(str(n * 7 % 90) for n in range(1_900)),
        ),
    ],
    ids=["similar lines", "anchored blocks", "many lines", "difference"],
)
async def test_a_patch(isolated: Shell, before: str, old: str, new: str) -> None:
    call = Calls(isolated.sandbox)
    await isolated.sandbox.write_file("file", before.encode())
    async with watched_loop():
        patched = await call("patch", mode="replace", path="file", old_string=old, new_string=new)
    assert patched.get("success") is not None
