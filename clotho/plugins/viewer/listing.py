"""Groups of a run as its page lists them: filtered, sorted and cut into pages; and sums over all of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from clotho.plugins.viewer.rows import GroupRow, deviation

PAGE = 100
MOST_BARS = 20
GRID = 39, 29
"""Cells of a scatter plot in each direction, without those of the greatest values."""
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
        # each key gives values of one type, which can be compared; `object` doesn't say so
        found.sort(key=SORTS[name], reverse=wanted.sort.startswith("-"))  # type: ignore[arg-type]
    last = max(0, (len(found) - 1) // PAGE)
    number = min(wanted.page, last)
    return Page(found[number * PAGE : (number + 1) * PAGE], len(found), number, last)


class Bar(NamedTuple):
    """A bar of a histogram."""

    label: str
    height: int
    """Rollouts."""


class Dot(NamedTuple):
    """Rollouts of about the same reward and length: their means, and each from 0 to 1 within the plot."""

    x: float
    y: float
    length: float
    reward: float
    rollouts: int


@dataclass(frozen=True)
class Scatter:
    """Rewards against a length of rollouts, in at most 1,200 dots."""

    dots: Sequence[Dot]
    lengths: tuple[float, float]
    """The least and the greatest."""
    rewards: tuple[float, float]


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
    spent: tuple[int, int, int]
    """Tokens of prompts, cached ones among them, and sampled tokens, of all groups."""
    histogram: Sequence[Bar]
    by_tokens: Scatter | None
    """None without a rollout."""
    by_turns: Scatter | None
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
        spent=(
            sum(row.spent[0] for row in rows),
            sum(row.spent[1] for row in rows),
            sum(row.spent[2] for row in rows),
        ),
        histogram=histogram(scores),
        by_tokens=scatter([(each.tokens, each.score) for each in rollouts]),
        by_turns=scatter([(each.turns, each.score) for each in rollouts]),
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
    # the greatest value lies on the last edge, and belongs to the last bar
    bins = Counter(min(bars - 1, int((value - low) / width)) for value in values)
    edges = [low + at * width for at in range(bars + 1)]
    return [Bar(f"{_short(edges[at])} to {_short(edges[at + 1])}", bins[at]) for at in range(bars)]


def scatter(points: Sequence[tuple[float, float]]) -> Scatter | None:
    """A plot of (length, reward): points that lie in the same cell of a grid become one dot, at their mean."""
    if not points:
        return None
    lengths, rewards = zip(*points, strict=True)
    ranges = (min(lengths), max(lengths)), (min(rewards), max(rewards))
    (left, right), (low, high) = ranges
    width, height = right - left or 1, high - low or 1
    cells: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for length, reward in points:
        cell = int(GRID[0] * (length - left) / width), int(GRID[1] * (reward - low) / height)
        cells.setdefault(cell, []).append((length, reward))
    dots = []
    for inside in cells.values():
        length, reward = fmean(each for each, _ in inside), fmean(each for _, each in inside)
        dots.append(Dot((length - left) / width, (reward - low) / height, length, reward, len(inside)))
    return Scatter(dots, *ranges)


def _short(value: float) -> str:
    """A number in few characters."""
    for size, letter in ((1_000_000, "M"), (10_000, "k")):
        if abs(value) >= size:
            return f"{value / (1_000 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.0f}" if isinstance(value, int) or abs(value) >= 1_000 else f"{value:.3g}"
