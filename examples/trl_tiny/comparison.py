"""The same trainings with and without kills, over several seeds: their reward curves and what became of groups."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from clotho.evaluation.statistics import Estimate, student_quantile
from clotho.frozen_model import FrozenModel
from examples.grpo_tiny.comparison import shown
from examples.grpo_tiny.kills import Announce, draw_strikes
from examples.trl_tiny.chain import Training, chain_in
from examples.trl_tiny.fates import Fates, fates_of, read_log

PARTS = 4
"""Parts of a curve, each of as many steps: a run's rise is from the first to the last."""


class TrainingRun(FrozenModel):
    """One training."""

    training: Training
    kills: tuple[str, ...]
    """The parts that were killed, in order."""
    rewards: tuple[float, ...]
    """Mean reward of each step's rollouts."""
    seconds: float
    fates: Fates

    @property
    def curve(self) -> list[float]:
        """Mean reward of each part of the steps."""
        size = math.ceil(len(self.rewards) / PARTS)
        return [statistics.fmean(self.rewards[at : at + size]) for at in range(0, len(self.rewards), size)]

    @property
    def rise(self) -> float:
        return self.curve[-1] - self.curve[0]


class Comparison(FrozenModel):
    """Runs in pairs: each training without kills, and with them."""

    runs: tuple[TrainingRun, ...] = ()

    @classmethod
    def read(cls, results: Path) -> "Comparison":
        """The runs that a file keeps: none, where there is no such file."""
        return cls.model_validate_json(results.read_bytes()) if results.exists() else cls()

    def missing(self, trainings: Sequence[Training]) -> list[tuple[Training, bool]]:
        """Trainings that weren't played, and whether with kills: both runs of a seed before those of the next."""
        runs = [(training, killed) for training in trainings for killed in (False, True)]
        return [(training, killed) for training, killed in runs if self.run(training, killed) is None]

    def run(self, training: Training, killed: bool) -> TrainingRun | None:
        found = (run for run in self.runs if run.training == training and bool(run.kills) == killed)
        return next(found, None)

    @property
    def pairs(self) -> list[tuple[TrainingRun, TrainingRun]]:
        """Trainings that were played both ways, without kills and with them, in the order of their seeds."""
        both = [(run, self.run(run.training, True)) for run in self.runs if not run.kills]
        found = [(run, killed) for run, killed in both if killed is not None]
        return sorted(found, key=lambda pair: pair[0].training.seed)


async def play(folder: Path, python: str, training: Training, kills: int, announce: Announce) -> TrainingRun:
    """One training in `folder`, under services of its own."""
    async with chain_in(folder, python, training, announce) as chain:
        strikes = draw_strikes(tuple(chain.parts), kills, training.steps, training.seed)
        seconds = await chain.train(strikes, announce)
        return TrainingRun(
            training=training,
            kills=tuple(chain.killed),
            rewards=tuple(entry.reward for entry in read_log(chain.log)),
            seconds=seconds,
            fates=await fates_of(chain),
        )


def table(comparison: Comparison) -> list[str]:
    """Markdown, each line a run, and below the rise with its interval at 95 % over seeds."""
    pairs = comparison.pairs
    steps = len(pairs[0][0].rewards)
    size = math.ceil(steps / PARTS)
    parts = [f"steps {at + 1}–{min(at + size, steps)}" for at in range(0, steps, size)]
    head = ["seed", "SIGKILLs", *parts, "rise", "groups", "lost", "trained on twice", "seconds"]
    lines = [_row(head), _row(["---"] * len(head)), *(_row(_cells(run)) for pair in pairs for run in pair)]
    rises = [[run.rise for run in runs] for runs in zip(*pairs, strict=True)]
    apart = [killed.rise - plain.rise for plain, killed in pairs]
    same = [_same_steps(*pair) for pair in pairs]
    return [
        *lines,
        "",
        f"Rise without kills {shown(over_seeds(rises[0]))}, with kills {shown(over_seeds(rises[1]))}.",
        f"The second less the first {shown(over_seeds(apart))}.",
        f"These are means over {len(apart)} seeds, with intervals at 95 %.",
        f"Steps before the first with another reward than without kills: {', '.join(map(str, same))}.",
    ]


def over_seeds(values: Sequence[float]) -> Estimate:
    """The mean with an interval at 95 %: Student's t."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, -math.inf, math.inf)
    reach = student_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - reach, mean + reach)


def _cells(run: TrainingRun) -> list[str]:
    fates = run.fates
    curve = [f"{reward:.2f}" for reward in run.curve]
    return [
        *(str(run.training.seed), str(len(run.kills)), *curve, f"{run.rise:+.2f}"),
        *(str(fates.ordered), str(fates.lost), str(fates.trained_twice), f"{run.seconds:.0f}"),
    ]


def _same_steps(one: TrainingRun, other: TrainingRun) -> int:
    pairs = zip(one.rewards, other.rewards, strict=True)
    return next((step for step, (a, b) in enumerate(pairs) if a != b), len(one.rewards))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
