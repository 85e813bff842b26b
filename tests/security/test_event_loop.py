"""Work that a policy makes as long as it can: the worker's event loop goes on meanwhile, and it ends."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell
from tests.sandbox.tool_calls import Calls

pytestmark = needs_root
LONGEST_STALL = 2.5
"""Seconds without a turn of the loop: a heartbeat has three times as long, on a machine that is busy with tests."""
LONGEST_CALL = 30.0
HALF = "".join(f"{n % 97:02}" for n in range(150))
CONFUSING = "\n".join(("ab" * n + "ba" * (150 - n))[:300] for n in range(150))


@asynccontextmanager
async def watched_loop() -> AsyncIterator[None]:
    """Fails where the loop stood still, or the work took too long."""
    stalls = []

    async def watch() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            stalls.append(time.monotonic() - before)

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(LONGEST_CALL):
        yield
    await asyncio.sleep(0.02)
    watching.cancel()
    assert max(stalls) < LONGEST_STALL


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
