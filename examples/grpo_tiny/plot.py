"""The comparison as an SVG: both runs' scores over steps, what they earn held out, and when parts were killed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from examples.grpo_tiny.comparison import Comparison, TrainingRun
from examples.grpo_tiny.steps import StepReport

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 64, 40, 132, 48
BLUE, RED, GREY = "#1f6feb", "#d1242f", "#57606a"
SMOOTHED_OVER = 5
APART = 5.0
"""Pixels that the two runs' held-out marks stand beside their step."""


def plot(comparison: Comparison) -> str:
    axes = Axes(comparison.order.training.steps)
    drawn = [
        *axes.frame(),
        *axes.kills(comparison.killed, RED),
        *axes.scores(comparison.undisturbed, BLUE),
        *axes.scores(comparison.killed, RED),
        *axes.held_out(comparison.undisturbed, BLUE, -APART),
        *axes.held_out(comparison.killed, RED, APART),
        *legend(comparison),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


@dataclass(frozen=True)
class Axes:
    """Steps from 0 to `steps` across, scores from 0 to 1 up."""

    steps: int

    def across(self, step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * step / self.steps, 1)

    def up(self, score: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * score, 1)

    def frame(self) -> Iterator[str]:
        for score in (0, 0.25, 0.5, 0.75, 1):
            yield line(self.across(0), self.up(score), self.across(self.steps), self.up(score), "#d8dee4")
            yield text(LEFT - 8, self.up(score) + 4, f"{score:.2f}", GREY, "end")
        for step in range(0, self.steps + 1, 5):
            yield text(self.across(step), HEIGHT - BOTTOM + 18, str(step), GREY, "middle")
        yield text(self.across(self.steps / 2), HEIGHT - 10, "training step", GREY, "middle")
        y = self.up(0.5)
        yield text(18, y, "mean reward", GREY, "middle", f'transform="rotate(-90 18 {y})"')

    def scores(self, run: TrainingRun, colour: str) -> Iterator[str]:
        """The scores of the batches: each, and the mean of the last few."""
        for step in run.steps:
            x, y = self.across(step.step), self.up(step.score)
            yield f'<circle cx="{x}" cy="{y}" r="2" fill="{colour}" opacity="0.35"/>'
        points = " ".join(f"{self.across(step)},{self.up(score)}" for step, score in smoothed(run.steps))
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    def held_out(self, run: TrainingRun, colour: str, beside: float) -> Iterator[str]:
        for step, estimate in ((0, run.before.score), (self.steps, run.after.score)):
            x = self.across(step) + beside
            yield line(x, self.up(estimate.low), x, self.up(estimate.high), colour)
            for end in (estimate.low, estimate.high):
                yield line(x - 3, self.up(end), x + 3, self.up(end), colour)
            y = self.up(estimate.mean)
            yield f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8" fill="{colour}" stroke="white"/>'

    def kills(self, run: TrainingRun, colour: str) -> Iterator[str]:
        """The kills, at the run's progress when they came."""
        times = [run.started, *(step.finished for step in run.steps)]
        for kill in run.kills:
            x = self.across(float(np.interp(kill.at, times, range(len(times)))))
            yield line(x, TOP - 6, x, HEIGHT - BOTTOM, colour, 'stroke-dasharray="3 4" opacity="0.6"')
            yield text(x + 2, TOP - 10, kill.part, colour, "start", f'transform="rotate(-35 {x} {TOP - 10})"')


def legend(comparison: Comparison) -> Iterator[str]:
    size = comparison.order.held_out
    for number, (run, colour) in enumerate(((comparison.undisturbed, BLUE), (comparison.killed, RED))):
        killed = f", {len(run.kills)} SIGKILLs" if run.kills else ""
        earned = f"held out {run.before.score.mean:.2f} → {run.after.score.mean:.2f}"
        yield text(
            LEFT, 20 + 17 * number, f"{run.name}{killed}: {run.seconds:.0f} s; {earned}", colour, "start"
        )
    squares = f"squares: {size.items} held-out items × {size.rollouts} rollouts, 95 % intervals"
    curves = f"dots: batches as sampled; lines: mean of the last {SMOOTHED_OVER}; dashes: SIGKILLs"
    yield text(LEFT, 54, f"{squares}; {curves}", GREY, "start", 'font-size="11"')


def smoothed(steps: Sequence[StepReport]) -> list[tuple[int, float]]:
    """Each step with the mean of the last SMOOTHED_OVER scores."""
    scores = [step.score for step in steps]
    recent = [scores[max(0, end - SMOOTHED_OVER) : end] for end in range(1, len(scores) + 1)]
    return [(step.step, sum(few) / len(few)) for step, few in zip(steps, recent, strict=True)]


def line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" {more}/>'


def text(x: float, y: float, content: str, colour: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}" {more}>{escape(content)}</text>'
