"""Groups of a run as its page lists them: filtered, sorted and cut into pages; and sums over all of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from clotho.plugins.viewer.rows import GroupRow, deviation

PAGE = 100
MOST_BARS = 20
SORTS: Mapping[str, Callable[[GroupRow], object]] = {
    "group": lambda row: row.group,
    "mean": lambda row: row.mean,
    "spread": lambda row: row.spread,
    "turns": lambda row: row.turns,
    "tokens": lambda row: row.tokens,
    "seconds": lambda row: row.seconds,
    "failures": lambda row: len(row.failures),
}


@dataclass(frozen=True)
class Wanted:
    """What a user asked the list for; texts come from the address and may be anything."""

    sort: str = ""
    """A name of SORTS, after a minus for the largest first; else groups stay in their order."""
    text: str = ""
    outcome: str = ""
    disturbed: str = ""
    """A disturbance, or `any`, or `none`."""
    spread: str = ""
    """`none`: groups whose rewards are all the same; `some`: the others."""
    page: int = 0

    @classmethod
    def asked(cls, query: Mapping[str, str]) -> "Wanted":
        page = query.get("page", "")
        return cls(
            sort=query.get("sort", ""),
            text=query.get("text", "").strip(),
            outcome=query.get("outcome", ""),
            disturbed=query.get("disturbed", ""),
            spread=query.get("spread", ""),
            page=int(page) if page.isascii() and page.isdecimal() and len(page) < 8 else 0,
        )

    @property
    def query(self) -> dict[str, str]:
        """Everything but the page, as it was asked."""
        values = {
            name: str(getattr(self, name)) for name in ("sort", "text", "outcome", "disturbed", "spread")
        }
        return {name: value for name, value in values.items() if value}

    def keeps(self, row: GroupRow) -> bool:
        outcomes = {each.outcome for each in row.rollouts}
        disturbed = row.disturbances
        wanted = {"": True, "any": bool(disturbed), "none": not disturbed}
        spread = {"none": row.spread == 0, "some": row.spread > 0}
        return (
            self.text.lower() in f"{row.name} {row.label}".lower()
            and (not self.outcome or self.outcome in outcomes)
            and wanted.get(self.disturbed, self.disturbed in disturbed)
            and spread.get(self.spread, True)
        )


class Page(NamedTuple):
    """A part of a list."""

    rows: Sequence[GroupRow]
    found: int
    """Groups on all pages."""
    number: int
    last: int


def page_of(rows: Sequence[GroupRow], wanted: Wanted) -> Page:
    found = [row for row in rows if wanted.keeps(row)] if wanted.query.keys() - {"sort"} else list(rows)
    name = wanted.sort.removeprefix("-")
    if name in SORTS:
        found.sort(key=SORTS[name], reverse=wanted.sort.startswith("-"))  # type: ignore[arg-type]
    last = max(0, (len(found) - 1) // PAGE)
    number = min(wanted.page, last)
    return Page(found[number * PAGE : (number + 1) * PAGE], len(found), number, last)


class Bar(NamedTuple):
    """A bar of a histogram."""

    label: str
    height: int
    """Rollouts."""


@dataclass(frozen=True)
class RunSums:
    """Sums over the scored groups of a run."""

    groups: int
    rollouts: int
    mean: float
    deviation: float
    undecided: int
    """Groups whose rewards are all the same."""
    turns: float
    tokens: int
    seconds: float
    tool_calls: int
    tool_errors: int
    histogram: Sequence[Bar]
    outcomes: Mapping[str, int]
    disturbances: Mapping[str, int]
    """Rollouts with each disturbance."""
    disturbed: int
    """Rollouts with any."""


def sums_of(rows: Sequence[GroupRow]) -> RunSums:
    rollouts = [each for row in rows for each in row.rollouts]
    scores = [each.score for each in rollouts]
    return RunSums(
        groups=len(rows),
        rollouts=len(rollouts),
        mean=fmean(scores) if scores else 0.0,
        deviation=deviation(scores),
        undecided=sum(len({each.score for each in row.rollouts}) < 2 for row in rows),
        turns=fmean([each.turns for each in rollouts]) if rollouts else 0.0,
        tokens=sum(each.tokens for each in rollouts),
        seconds=sum(each.seconds for each in rollouts),
        tool_calls=sum(each.tool_calls for each in rollouts),
        tool_errors=sum(each.tool_errors for each in rollouts),
        histogram=histogram(scores),
        outcomes=dict(Counter(each.outcome for each in rollouts).most_common()),
        disturbances=dict(Counter(kind for each in rollouts for kind in each.disturbances).most_common()),
        disturbed=sum(bool(each.disturbances) for each in rollouts),
    )


def histogram(values: Sequence[float]) -> list[Bar]:
    """Counts of values: one bar for each where they are few, else of equal width; whole numbers aren't divided."""
    counts = Counter(values)
    if len(counts) <= MOST_BARS // 2:
        return [Bar(_short(value), counts[value]) for value in sorted(counts)]
    low, high = min(values), max(values)
    if all(isinstance(value, int) for value in counts):
        width: float = (high - low) // MOST_BARS + 1
        bars = int((high - low) // width) + 1
    else:
        width, bars = (high - low) / MOST_BARS, MOST_BARS
    bins = Counter(min(bars - 1, int((value - low) / width)) for value in values)
    edges = [low + at * width for at in range(bars + 1)]
    return [Bar(f"{_short(edges[at])} to {_short(edges[at + 1])}", bins[at]) for at in range(bars)]


def _short(value: float) -> str:
    """A number in few characters."""
    for size, letter in ((1_000_000, "M"), (10_000, "k")):
        if abs(value) >= size:
            return f"{value / (1_000 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.0f}" if isinstance(value, int) or abs(value) >= 1_000 else f"{value:.3g}"
