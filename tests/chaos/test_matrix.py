"""A representative part of the fault matrix, played for real."""

from collections.abc import Mapping

import pytest

from chaos.faults import FAULTS, partition
from chaos.lanes import play_all
from chaos.plays import Name
from chaos.results import CellResult
from tests.chaos.patience import LANES, missed_with_patience, patience

pytestmark = pytest.mark.slow
PARTITION = 15.0
CELLS: tuple[Name, ...] = (("partition", "journalled"), ("workers", "reward"), ("continued", "between-calls"))
"""Those that no test of `tests/workflows` strikes alike; `make chaos` plays all."""


@pytest.fixture(scope="module")
async def results() -> Mapping[Name, CellResult]:
    played: list[CellResult] = []
    with patience():
        await play_all(FAULTS | {"partition": partition(PARTITION)}, CELLS, played.append, LANES)
    return {(result.fault, result.phase): result for result in played}


@pytest.mark.parametrize(("fault", "phase"), CELLS)
async def test_nothing_is_lost_repaid_re_run_or_orphaned(
    results: Mapping[Name, CellResult], fault: str, phase: str
) -> None:
    result = results[fault, phase]
    assert missed_with_patience(result) == [], result
