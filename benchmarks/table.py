"""A benchmark's figures as rows."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure, with its unit, and what was aimed at."""

    what: str
    figure: str
    aim: str = ""


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The ratio of the two medians, and the least and the greatest of the pairs."""
    pairs = [one / other for one, other in zip(ours, theirs, strict=True)]
    median = statistics.median(ours) / statistics.median(theirs)
    return f"{median:.2f} ({min(pairs):.2f}–{max(pairs):.2f})"
