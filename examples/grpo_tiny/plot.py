"""The mean score over steps, as an SVG."""

from collections.abc import Mapping, Sequence
from html import escape

from examples.grpo_tiny.train import StepReport

WIDTH, HEIGHT, EDGE = 720, 360, 48
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
SMOOTHED_OVER = 5


def plot(runs: Mapping[str, Sequence[StepReport]]) -> str:
    """A line for each run: the mean score of its batches, and of the last few of them."""
    last = max(report.step for reports in runs.values() for report in reports)

    def point(step: float, score: float) -> str:
        across = EDGE + (WIDTH - 2 * EDGE) * step / last
        return f"{across:.1f},{HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * score:.1f}"

    parts = [
        f'<line x1="{EDGE}" x2="{WIDTH - EDGE}" y1="{y}" y2="{y}" stroke="#ddd"/>'
        f'<text x="{EDGE - 6}" y="{y + 4}" text-anchor="end">{tick / 4:.2f}</text>'
        for tick in range(5)
        for y in [round(HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * tick / 4)]
    ]
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">training steps, to {last}</text>'
    )
    for number, (name, reports) in enumerate(runs.items()):
        colour = COLOURS[number % len(COLOURS)]
        exact = " ".join(point(report.step, report.score) for report in reports)
        smooth = " ".join(point(step, score) for step, score in smoothed(reports))
        parts += [
            f'<polyline points="{exact}" fill="none" stroke="{colour}" opacity="0.3"/>',
            f'<polyline points="{smooth}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{EDGE + 8}" y="{EDGE + 16 * number}" fill="{colour}">{escape(name)}</text>',
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(parts)}</svg>\n"
    )


def smoothed(reports: Sequence[StepReport]) -> list[tuple[int, float]]:
    """Each step with the mean of the last SMOOTHED_OVER scores."""
    scores = [report.score for report in reports]
    recent = [scores[max(0, end - SMOOTHED_OVER) : end] for end in range(1, len(scores) + 1)]
    return [(report.step, sum(few) / len(few)) for report, few in zip(reports, recent, strict=True)]
