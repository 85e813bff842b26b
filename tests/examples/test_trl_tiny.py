"""The comparison of trainings with TRL: what its figures say. `tests/real_trl.py` plays the trainings."""

import math
from pathlib import Path

import pytest

from clotho.plugins.trainers.trl import Completion
from clotho.runs.ledger import Claim
from examples.trl_tiny.__main__ import BEGIN, END
from examples.trl_tiny.chain import Training
from examples.trl_tiny.comparison import Comparison, TrainingRun, over_seeds, table
from examples.trl_tiny.fates import Fates, StepEntry, times_trained

PAGE = Path("docs/trainers.md")
FATES = Fates(ordered=8, scored=8, acknowledged=8, rollouts=16, lost=0, trained_twice=0)


def played(seed: int, rewards: tuple[float, ...], kills: tuple[str, ...] = ()) -> TrainingRun:
    training = Training(seed=seed, steps=len(rewards))
    return TrainingRun(training=training, kills=kills, rewards=rewards, seconds=60.0, fates=FATES)


def test_a_table_has_both_runs_of_each_seed_that_has_both_and_the_interval_over_seeds() -> None:
    runs = (
        played(1, (0.0, 0.0, 0.5, 1.0), ("trainer", "trainer")),
        played(1, (0.0, 0.25, 0.5, 1.0)),
        played(0, (0.0, 0.5, 0.5, 0.5)),
        played(0, (0.0, 0.5, 0.5, 0.75), ("trainer",)),
    )
    lines = table(Comparison(runs=(*runs, played(2, (0.0, 0.0, 0.0, 0.0)))))
    assert [line.split(" | ")[:2] for line in lines[2:6]] == [
        ["| 0", "0"],
        ["| 0", "1"],
        ["| 1", "0"],
        ["| 1", "2"],
    ]
    assert "| 0 | 1 | 0.00 | 0.50 | 0.50 | 0.75 | +0.75 | 8 | 0 | 0 | 60 |" in lines
    text = "\n".join(lines)
    assert "without kills 0.750 (" in text and "with kills 0.875 (" in text
    assert "The second less the first 0.125 (" in text and "over 2 seeds" in text
    assert text.endswith("than without kills: 3, 1.")


def test_runs_that_a_file_keeps_are_not_played_again(tmp_path: Path) -> None:
    first, second = (played(seed, (0.0, 0.5)) for seed in (0, 1))
    trainings = [first.training, second.training]
    results = tmp_path / "results.json"
    assert len(Comparison.read(results).missing(trainings)) == 4
    results.write_text(Comparison(runs=(first,)).model_dump_json())
    missing = [(first.training, True), (second.training, False), (second.training, True)]
    assert Comparison.read(results).missing(trainings) == missing


def test_equal_rises_have_an_interval_without_width() -> None:
    estimate = over_seeds([0.0, 0.0, 0.0])
    assert (estimate.mean, estimate.low, estimate.high) == (0.0, 0.0, 0.0)
    assert over_seeds([0.5]).high == math.inf


def test_steps_that_are_no_multiple_of_the_parts_are_all_in_the_curve() -> None:
    run = played(0, (0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1.0))
    assert run.curve == [0.0, 0.5, 1.0, 1.0]
    assert run.rise == 1.0


def completion(reward: float | None, sampled: int) -> Completion:
    return Completion([1, 2], [3] * sampled, [-0.5] * sampled, [1] * sampled, reward)


CLAIMS = [
    Claim(number, f"run/i-{name}.0", {}, step) for number, (name, step) in enumerate([("a", 0), ("b", 1)])
]
ROWS = {
    "run/i-a.0": [completion(1.0, 3), completion(0.0, 5)],
    "run/i-b.0": [completion(1.0, 4), completion(None, 1)],
}


def entry(step: int, reward: float, num_tokens: int) -> StepEntry:
    return StepEntry(step=step, reward=reward, num_tokens=num_tokens)


@pytest.mark.parametrize(
    ("log", "times"),
    [
        ([entry(1, 0.5, 12), entry(2, 1.0, 21)], {"run/i-a.0": 1, "run/i-b.0": 1}),
        ([entry(1, 0.5, 12)], {"run/i-a.0": 1}),
        ([entry(1, 0.5, 12), entry(1, 0.5, 24), entry(2, 1.0, 33)], {"run/i-a.0": 2, "run/i-b.0": 1}),
        ([entry(1, 0.5, 13), entry(2, 1.0, 22)], {"run/i-b.0": 1}),
        ([entry(1, 0.25, 12), entry(2, 1.0, 21)], {"run/i-b.0": 1}),
        ([entry(1, math.nan, 12)], {}),
    ],
    ids=["each once", "one lost", "one twice", "other tokens", "other rewards", "no rewards"],
)
def test_groups_are_told_by_their_step_s_rewards_and_tokens(
    log: list[StepEntry], times: dict[str, int]
) -> None:
    assert times_trained(CLAIMS, ROWS, log) == times


def test_the_page_has_a_place_for_the_table() -> None:
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    assert begin and END in rest, before[-200:]
