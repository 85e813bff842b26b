"""The rate that pacers reach with servers of all kinds, beside the best that each allows, in simulated time."""

import pytest

from clotho.models.width import FIRST_WIDTH
from clotho.testing.script import Script, terminal_turns
from tests.unit.models.simulated_pace import SimulatedServer, Speed, simulate


def best_at(number: int) -> Speed:
    """A server whose rate falls when it answers more at once."""
    script = Script(conversations=(terminal_turns(1),), best_at_once=number)
    return script.speed


def constant(at_once: int) -> float:
    return 1.0


def queueing(at_once: int) -> float:
    """A server that answers 32 at once, and lets others wait."""
    return min(1.0, 32 / at_once)


def batching(at_once: int) -> float:
    """A server that takes longer for each of many, and does more."""
    return 1 / (1 + at_once / 50)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("best", "wanted"), [(8, 40), (8, 300), (64, 300)])
def test_a_server_that_slows_down_is_asked_for_as_many_as_it_does_best(
    monkeypatch: pytest.MonkeyPatch, processes: int, best: int, wanted: int
) -> None:
    server = SimulatedServer(best_at(best))
    simulate(monkeypatch, server, wanted, 300, processes)
    assert server.rate(150, 300) >= 0.85 * best


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("counts_tokens", [True, False])
def test_a_server_that_scales_is_asked_for_all_there_is(
    monkeypatch: pytest.MonkeyPatch, processes: int, counts_tokens: bool
) -> None:
    server = SimulatedServer(constant, counts_tokens=counts_tokens)
    simulate(monkeypatch, server, 300, 60, processes)
    full = next(second for second, width in enumerate(server.widths) if width >= 300)
    assert full < 20
    assert min(server.widths[full:]) >= 300, "and never for fewer again"
    assert server.rate(30, 60) >= 0.9 * 300


@pytest.mark.parametrize(("speed", "best"), [(queueing, 32.0), (batching, 300 / 7)])
def test_a_server_that_takes_longer_for_more_is_asked_for_what_brings_more(
    monkeypatch: pytest.MonkeyPatch, speed: Speed, best: float
) -> None:
    server = SimulatedServer(speed)
    simulate(monkeypatch, server, 300, 300)
    assert server.rate(60, 300) >= 0.85 * best


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("most", [4, 16])
def test_a_limit_is_used_from_the_start(monkeypatch: pytest.MonkeyPatch, processes: int, most: int) -> None:
    """Refusals of what was sent before others knew of the width don't narrow it once more."""
    server = SimulatedServer(constant, most=most)
    simulate(monkeypatch, server, 40, 60, processes)
    assert min(server.widths) >= min(3, FIRST_WIDTH)
    assert server.rate(0, 60) >= 0.75 * most


def test_a_server_that_is_slow_for_a_minute_is_asked_for_all_there_is_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = SimulatedServer(constant)
    simulate(monkeypatch, server, 300, 240, changes={60: lambda number: 0.2, 120: constant})
    assert server.rate(60, 120) >= 0.8 * 60, "fewer at once would be no quicker"
    assert server.rate(120, 240) >= 0.9 * 300


def test_a_server_that_bears_less_for_a_minute_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimulatedServer(constant)
    simulate(monkeypatch, server, 40, 300, changes={60: best_at(8), 120: constant})
    assert server.rate(180, 300) >= 0.9 * 40
