"""Two rollouts side by side."""

from dataclasses import dataclass
from itertools import zip_longest

from clotho.plugins.viewer.rollout import RolloutView, TurnView

Value = float | int | str | None


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
    if (end := view.end) is not None:
        limit = f" ({end.ending.limit})" if end.ending.limit else ""
        facts |= {
            "sampled tokens": end.sampled_tokens,
            "tool calls": end.tool_calls,
            "failed tool calls": end.tool_errors,
            "active seconds": round(end.active_seconds, 3),
            "outcome": f"{end.ending.outcome}{limit}",
        }
    facts["disturbed"] = ", ".join(kind.replace("_", " ") for kind in view.disturbances)
    return facts


def _content(turn: TurnView) -> object:
    """What a turn said and called, and the results, without names and times."""
    sampled = turn.entry.sampled if turn.entry is not None else None
    said = (sampled.message.content, sampled.message.reasoning_content) if sampled is not None else None
    calls = [
        (call.call.function, call.entry.content if call.entry is not None else None) for call in turn.calls
    ]
    return said, calls
