"""Harnesses: the script of their cells, and a part of the matrix, played for real."""

from collections.abc import Mapping

import pytest

from chaos.harness import tasks
from chaos.harness.faults import there_is
from chaos.harness.play import EXPECTED, play_all
from chaos.harness.restarts import TABLE, RestartResult
from chaos.harness.scripts import SMALL, HarnessScript
from chaos.plays import Name
from chaos.results import CellResult, compare
from clotho.rollouts.lease import Fidelity
from tests.chaos.patience import LANES, missed_with_patience, patience

CELLS: tuple[Name, ...] = (("harness-gateway", "call-half"),)
"""One that no test of `tests/harness` strikes alike; `make chaos` plays all."""
RESTARTED = RestartResult(fault="codex", phase="same", calls=5, matched=5, score=1.0)


def test_the_script_leaves_each_mark_once_and_takes_its_time_where_it_is_struck() -> None:
    [said] = SMALL.script(4).conversations[0].variants
    commands = [str(call.arguments) for turn in said for call in turn.calls]
    assert len(said) == tasks.TURNS + 1 and len(commands) == tasks.TURNS
    assert ["sleep 4" in command for command in commands] == [False, True, False, False]
    [said] = HarnessScript("mini-swe-agent", further="date").script().conversations[0].variants
    assert [turn.calls[0].name for turn in said] == ["bash"] * (tasks.TURNS + 2)


def test_a_call_that_was_made_again_under_another_name_is_counted() -> None:
    assert EXPECTED.turns is not None
    cell = CellResult(fault="harness", phase="call-done", recovery=1.0)
    again = EXPECTED.model_copy(update={"turns": EXPECTED.turns + 1})
    assert compare(cell, EXPECTED, EXPECTED).missed == []
    assert compare(cell, again, EXPECTED).missed == ["1 further turns"]


def test_a_start_that_differs_where_nothing_does_is_told() -> None:
    replayed = RESTARTED.model_copy(update={"fidelity": Fidelity.REPLAYED})
    diverged = RESTARTED.model_copy(update={"fidelity": Fidelity.DIVERGED, "diverged_at": 3})
    assert replayed.missed == [] and diverged.missed == ["diverged", "diverged at 3"]
    name = ("codex", "same")
    [_, _, _, line, *_] = TABLE.lines({name: [diverged, replayed]})
    assert line == "| codex | ✗ diverged; diverged at 3 (1 of 2 plays) | – |"


@pytest.fixture(scope="module")
async def results() -> Mapping[Name, CellResult]:
    played: list[CellResult] = []
    with patience():
        await play_all(list(filter(there_is, CELLS)), played.append, LANES)
    return {(result.fault, result.phase): result for result in played}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "phase"), CELLS)
async def test_nothing_is_lost_repaid_or_left_behind(
    results: Mapping[Name, CellResult], fault: str, phase: str
) -> None:
    if not there_is((fault, phase)):
        pytest.skip("an engine of its own takes root, podman and runc")
    result = results[fault, phase]
    assert missed_with_patience(result) == [], result
