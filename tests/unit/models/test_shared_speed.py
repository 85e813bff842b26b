"""Answers that slow each other down, as those of a scripted model with `best_at_once`."""

import asyncio

import pytest

from clotho.testing.script import Script, terminal_turns
from clotho.testing.shared_speed import SharedSpeed
from tests.unit.models.simulated_pace import BEGINNING, SimulatedLoop

SCRIPT = Script(conversations=(terminal_turns(1),), best_at_once=2)


async def ended(shared: SharedSpeed, seconds: float, after: float = 0.0) -> float:
    await asyncio.sleep(after)
    await shared.work(seconds)
    return asyncio.get_running_loop().time() - BEGINNING


async def several(*asked: tuple[float, float]) -> list[float]:
    shared = SharedSpeed(SCRIPT.speed)
    return await asyncio.gather(*(ended(shared, seconds, after) for seconds, after in asked))


@pytest.mark.parametrize(
    ("asked", "ends"),
    [
        ([(1.0, 0.0), (2.0, 0.0)], [1.0, 2.0]),
        ([(1.0, 0.0)] * 4, [4.0] * 4),
        ([(1.0, 0.0), (1.0, 0.0), (1.0, 0.5), (1.0, 0.5)], [2.5, 2.5, 3.0, 3.0]),
    ],
)
def test_more_answers_than_are_best_take_longer(asked: list[tuple[float, float]], ends: list[float]) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        assert runner.run(several(*asked)) == pytest.approx(ends)


async def one_gone() -> float:
    shared = SharedSpeed(SCRIPT.speed)
    others = [asyncio.create_task(ended(shared, 1.0)) for _ in range(3)]
    gone = asyncio.create_task(ended(shared, 1.0))
    await asyncio.sleep(2.0)
    gone.cancel()
    others.pop().cancel()
    return max(await asyncio.gather(*others))


def test_an_answer_whose_client_has_gone_slows_no_other_down() -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        assert runner.run(one_gone()) == pytest.approx(2.5)
