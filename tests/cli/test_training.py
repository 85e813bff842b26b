"""`clotho demo --atropos`: from sampled tokens to batches that a trainer checked."""

import re
from pathlib import Path

import pytest

from tests.cli.command import clotho

BATCH = re.compile(
    r"^batch (\d+): 2 groups, 4 rows, \d+ tokens, (\d+) trained, score [\d.]+, weights \w+, ok$", re.M
)


@pytest.mark.slow
async def test_the_demo_trains_through_atropos(folder: Path) -> None:
    store = folder / "training" / "store"
    demo = await clotho("demo", "--atropos", "--groups", "4", "--group-size", "2", "--store", store)
    assert demo.status == 0, demo.error
    batches = BATCH.findall(demo.output)
    assert [number for number, _ in batches] == ["0", "1"], demo.output
    assert all(int(trained) > 0 for _, trained in batches)
    assert (store.parent / "demo-1.sqlite").exists()


async def test_two_demonstrations_at_once_are_refused() -> None:
    both = await clotho("demo", "--atropos", "--crash")
    assert both.complaint == "clotho: --crash and --atropos are two demonstrations: give one"
