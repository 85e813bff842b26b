"""Fail points: what they do when armed, and that they cost nothing when not."""

import asyncio
import signal
import sys
import timeit
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from clotho import failpoints
from clotho.errors import InvalidInput
from tests.support import PATIENCE_SECONDS, eventually

CALLS = 20_000
ROUNDS = 50
MOST_COSTLY = 3.0
"""Times the cost of a call that does nothing; a turn passes four points and takes milliseconds."""
LONG = 10 * PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("", Path())


def begun(point: str, subject: str) -> "asyncio.Task[None]":
    """A step that arrives at the point."""
    return asyncio.create_task(failpoints.reach(point, subject))


async def passes(point: str, subject: str) -> None:
    """A step for which the point is none."""
    await asyncio.wait_for(begun(point, subject), PATIENCE_SECONDS)


async def stays(task: "asyncio.Task[None]") -> bool:
    """Whether the step is still at its point after a while."""
    await asyncio.wait([task], timeout=5 * failpoints.POLL_SECONDS)
    return not task.done()


async def appears(file: Path) -> None:
    async def is_there() -> bool:
        return file.exists()

    await eventually(is_there, f"a step that pauses at {file.name}")


async def test_a_pause_announces_itself_and_ends_when_its_file_is_removed(tmp_path: Path) -> None:
    failpoints.arm("turn.answered[*/r1/*]:pause@2", tmp_path)
    announced = tmp_path / "turn.answered"
    for rollout in ("r1", "r0"):
        await passes("turn.answered", f"run/g0/{rollout}/turn/0000")
    assert not announced.exists()
    second = begun("turn.answered", "run/g0/r1/turn/0000")
    await appears(announced)
    assert announced.read_text().endswith(" run/g0/r1/turn/0000")
    assert await stays(second)
    announced.unlink()
    await asyncio.wait_for(second, PATIENCE_SECONDS)
    await passes("turn.answered", "run/g0/r1/turn/0000")
    assert not announced.exists()


async def test_only_the_first_of_several_processes_pauses(tmp_path: Path) -> None:
    failpoints.arm("end.written:pause", tmp_path)
    first = begun("end.written", "a")
    await appears(tmp_path / "end.written")
    failpoints.arm("end.written:pause", tmp_path)
    await passes("end.written", "b")
    assert await stays(first)
    (tmp_path / "end.written").unlink()
    await asyncio.wait_for(first, PATIENCE_SECONDS)


async def test_a_delay_lasts_as_long_as_its_file_is_there(tmp_path: Path) -> None:
    failpoints.arm(f"journal.write:delay={LONG}", tmp_path)
    switch = tmp_path / "journal.write"
    switch.touch()
    slow = begun("journal.write", "key")
    assert await stays(slow)
    switch.unlink()
    await passes("journal.write", "key")
    assert not slow.done()
    slow.cancel()
    failpoints.arm("journal.write:delay=0.1", tmp_path)
    switch.touch()
    await passes("journal.write", "key")


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
    async def nothing(point: str, subject: str) -> None:
        """What a call costs in itself."""

    async def cost(step: Callable[[str, str], Awaitable[None]]) -> float:
        clock = timeit.default_timer()
        for _ in range(CALLS):
            await step("turn.answered", "run/g000000/r0/turn/0000")
        return timeit.default_timer() - clock

    least = plain = float("inf")
    for _ in range(ROUNDS):  # the machine may stand still in any of them
        least, plain = min(least, await cost(failpoints.reach)), min(plain, await cost(nothing))
    assert least < MOST_COSTLY * plain
