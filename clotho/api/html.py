"""A run as notebooks show it: a table of its figures, and the histogram of its rewards."""

from collections.abc import Sequence
from html import escape

from clotho.cli.summary import summary_rows
from clotho.evaluation.summary import RunSummary

BARS = 20
WIDTH, HEIGHT = 360, 90


def run_html(summary: RunSummary, rewards: Sequence[Sequence[float]]) -> str:
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in summary_rows(summary).items()
    )
    return f"<table>{rows}</table>{_histogram([each for group in rewards for each in group])}"


def _histogram(values: Sequence[float]) -> str:
    """Rewards of all scored rollouts; nothing where there are none."""
    if not values:
        return ""
    low, high = min(0.0, *values), max(1.0, *values)
    counts = [0] * BARS
    for value in values:
        counts[min(BARS - 1, int((value - low) / (high - low) * BARS))] += 1
    step = WIDTH / BARS
    bars = "".join(
        f"<rect x='{number * step + 1:.1f}' y='{HEIGHT - height:.1f}' width='{step - 2:.1f}' height='{height:.1f}' "
        f"fill='#4c78a8'><title>{count}</title></rect>"
        for number, count in enumerate(counts)
        if (height := HEIGHT * count / max(counts))
    )
    text = "font-size='11' fill='currentColor'"
    return (
        f"<svg role='img' aria-label='rewards of {len(values)} rollouts' "
        f"width='{WIDTH}' height='{HEIGHT + 16}'>{bars}"
        f"<text x='0' y='{HEIGHT + 13}' {text}>reward {low:g}</text>"
        f"<text x='{WIDTH}' y='{HEIGHT + 13}' text-anchor='end' {text}>{high:g}</text></svg>"
    )
