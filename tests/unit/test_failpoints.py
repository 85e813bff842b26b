"""Fail points: what they do when armed, and that they cost nothing when not."""

import asyncio
import signal
import sys
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest

from clotho import failpoints
from clotho.errors import InvalidInput
from tests.support import PATIENCE_SECONDS

CALLS = 100_000
COST_BOUND = 2e-6
"""Seconds; a turn passes four points and takes milliseconds."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("", Path())


def pending(*tasks: "asyncio.Task[None]") -> list[bool]:
    return [not task.done() for task in tasks]


async def reached(point: str, subject: str) -> "asyncio.Task[None]":
    """A step under way, given the time to arrive at the point."""
    task = asyncio.create_task(failpoints.reach(point, subject))
    await asyncio.wait([task], timeout=5 * failpoints.POLL_SECONDS)
    return task


async def test_a_pause_announces_itself_and_ends_when_its_file_is_removed(tmp_path: Path) -> None:
    failpoints.arm("turn.answered[*/r1/*]:pause@2", tmp_path)
    announced = tmp_path / "turn.answered"
    first, other, second = [
        await reached("turn.answered", f"run/g0/{rollout}/turn/0000") for rollout in ("r1", "r0", "r1")
    ]
    assert pending(first, other, second) == [False, False, True]
    assert announced.read_text().endswith(" run/g0/r1/turn/0000")
    announced.unlink()
    await asyncio.wait_for(second, PATIENCE_SECONDS)
    third = await reached("turn.answered", "run/g0/r1/turn/0000")
    assert third.done() and not announced.exists()


async def test_only_the_first_of_several_processes_pauses(tmp_path: Path) -> None:
    failpoints.arm("end.written:pause", tmp_path)
    first = await reached("end.written", "a")
    failpoints.arm("end.written:pause", tmp_path)
    second = await reached("end.written", "b")
    assert pending(first, second) == [True, False]
    (tmp_path / "end.written").unlink()
    await first


async def test_a_delay_lasts_as_long_as_its_file_is_there(tmp_path: Path) -> None:
    failpoints.arm("journal.write:delay=0.5", tmp_path)
    switch = tmp_path / "journal.write"
    switch.touch()
    slow = await reached("journal.write", "key")
    switch.unlink()
    fast = await reached("journal.write", "key")
    assert pending(slow, fast) == [True, False]
    await slow


async def test_a_kill_is_a_sigkill_at_the_hit_that_was_asked_for(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib\nfrom clotho import failpoints\n"
        f"failpoints.arm('turn.asking:kill@2', pathlib.Path({str(tmp_path)!r}))\n"
        "async def main():\n    await failpoints.reach('turn.asking', 'x')\n    print('once', flush=True)\n"
        "    await failpoints.reach('turn.asking', 'x')\n    print('twice', flush=True)\n"
        "asyncio.run(main())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert (process.returncode, output) == (-signal.SIGKILL, b"once\n")


@pytest.mark.parametrize("rule", ["turn.asking", "turn.asking:explode", "turn.asking:kill@0", "x:delay"])
def test_what_is_no_rule_is_refused(rule: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"fail point .*: write point\[subject\]"):
        failpoints.arm(rule, tmp_path)


async def test_a_point_that_is_off_costs_nothing() -> None:
    async def pass_often() -> None:
        for _ in range(CALLS):
            await failpoints.reach("turn.answered", "run/g000000/r0/turn/0000")

    clock = timeit.default_timer()
    await pass_often()
    assert (timeit.default_timer() - clock) / CALLS < COST_BOUND
