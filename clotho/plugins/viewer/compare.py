"""Two rollouts, or two runs, side by side: their facts, and their rewards on the items that both runs have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean

from clotho.evaluation.comparison import Paired, paired
from clotho.evaluation.figures import DIFFERENCE
from clotho.plugins.viewer.listing import RunSums
from clotho.plugins.viewer.rollout import RolloutView, TurnView
from clotho.plugins.viewer.rows import GroupRow

Value = float | int | str | None
MOST_SHOWN = 50


@dataclass(frozen=True)
class Row:
    """A fact about both."""

    name: str
    a: Value
    b: Value

    @property
    def difference(self) -> float | None:
        if isinstance(self.a, int | float) and isinstance(self.b, int | float):
            return self.b - self.a
        return None


def compared(a: RolloutView, b: RolloutView) -> list[Row]:
    """The facts of both rollouts, and the parts of their rewards."""
    mine, theirs = _facts(a), _facts(b)
    return [Row(name, mine.get(name), theirs.get(name)) for name in {**mine, **theirs}]


def turn_pairs(a: RolloutView, b: RolloutView) -> list[tuple[TurnView | None, TurnView | None]]:
    return list(zip_longest(a.turns, b.turns))


def first_difference(a: RolloutView, b: RolloutView) -> int | None:
    """The number of the first of these turns that differs in what was said, called or answered."""
    for left, right in turn_pairs(a, b):
        if left is None or right is None or _content(left) != _content(right):
            return (left or right or a.turns[0]).number
    return None


def _facts(view: RolloutView) -> dict[str, Value]:
    facts: dict[str, Value] = {}
    if view.reward is not None:
        facts["reward"] = view.reward.score
        facts |= {f"reward: {name}": value for name, value in view.reward.breakdown.items()}
    facts["turns"] = view.count
    if view.program is not None:
        facts |= _program_facts(view)
    if (end := view.end) is not None:
        limit = f" ({end.ending.limit})" if end.ending.limit else ""
        calls: dict[str, Value] = {"tool calls": end.tool_calls, "failed tool calls": end.tool_errors}
        facts |= {
            "sampled tokens": end.sampled_tokens,
            **(calls if view.program is None else {}),
            "active seconds": round(end.active_seconds, 3),
            "outcome": f"{end.ending.outcome}{limit}",
        }
    facts["disturbed"] = ", ".join(kind.replace("_", " ") for kind in view.disturbances)
    return facts


def _program_facts(view: RolloutView) -> dict[str, Value]:
    """The agent's program, and how its last start compares with earlier ones."""
    facts: dict[str, Value] = {"agent": view.program}
    if view.ends:
        last = view.ends[max(view.ends)]
        facts |= {
            "exit code": last.end.exit_code,
            "starts": max(view.ends) + 1,
            "calls answered from the journal": last.matched,
            "calls answered again": last.repeated,
        }
    return facts


def _content(turn: TurnView) -> object:
    """What a turn said and called, and the results, without names and times."""
    sampled = turn.entry.sampled if turn.entry is not None else None
    said = (sampled.message.content, sampled.message.reasoning_content) if sampled is not None else None
    calls = [
        (call.call.function, call.entry.content if call.entry is not None else None) for call in turn.calls
    ]
    return said, calls


@dataclass(frozen=True)
class Pair:
    """What both runs have of an item: its groups, and their mean rewards."""

    a: GroupRow
    """The first of them, as `b` is."""
    b: GroupRow
    a_mean: float
    b_mean: float

    @property
    def difference(self) -> float:
        return self.b_mean - self.a_mean


@dataclass(frozen=True)
class ItemByItem:
    """The items of both runs, compared as `clotho eval compare` compares them."""

    items: int
    rewards: Paired
    most: Sequence[Pair]
    """Those that differ most."""


def compared_runs(a: RunSums, b: RunSums) -> list[Row]:
    return [
        Row("scored groups", a.groups, b.groups),
        Row("rollouts", a.rollouts, b.rollouts),
        Row("mean reward", a.mean, b.mean),
        Row("standard deviation", a.deviation, b.deviation),
        Row("groups of one reward", a.undecided, b.undecided),
        Row("turns per rollout", a.turns, b.turns),
        Row("tokens per rollout", a.tokens / max(1, a.rollouts), b.tokens / max(1, b.rollouts)),
        Row("disturbed rollouts", a.disturbed, b.disturbed),
    ]


def compared_items(a: Sequence[GroupRow], b: Sequence[GroupRow]) -> ItemByItem | None:
    """The comparison of rewards item by item; None where the runs have none in common."""
    mine, theirs = _by_item(a), _by_item(b)
    names = [name for name in mine if name in theirs]
    if not names:
        return None
    left, right = [_scores(mine[name]) for name in names], [_scores(theirs[name]) for name in names]
    pairs = [
        Pair(mine[name][0], theirs[name][0], fmean(one), fmean(other))
        for name, one, other in zip(names, left, right, strict=True)
    ]
    differing = sorted((each for each in pairs if each.difference), key=lambda pair: -abs(pair.difference))
    return ItemByItem(len(names), paired(left, right, DIFFERENCE), differing[:MOST_SHOWN])


def _by_item(rows: Sequence[GroupRow]) -> Mapping[str, Sequence[GroupRow]]:
    found: dict[str, list[GroupRow]] = {}
    for row in rows:
        if row.rollouts:
            found.setdefault(row.item, []).append(row)
    return found


def _scores(groups: Sequence[GroupRow]) -> list[float]:
    return [score for group in groups for score in group.scores]
