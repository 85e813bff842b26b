"""The waterfall of a rollout: its turns, calls and verification, and the time between them, from the journal."""

from collections.abc import Sequence
from dataclasses import dataclass

from clotho.plugins.viewer.rollout import TurnView
from clotho.rollouts.verification import RewardEntry
from clotho.runs.pauses import Pause

LEAST_GAP_SECONDS = 0.05
"""Shorter gaps are not shown: a step costs as much."""
KINDS = {
    "model": "model",
    "tool": "tool call",
    "verify": "verification",
    "program": "the agent's program at work between turns",
    "wait": "between steps: queues, the store or an outage",
    "pause": "the run, its group or the rollout was paused",
    "repair": "until a failed rollout went on",
    "recovery": "until a lost sandbox was replaced",
}


@dataclass(frozen=True)
class Span:
    """A part of a rollout's time, in seconds since its first shown step."""

    kind: str
    label: str
    start: float
    seconds: float


@dataclass(frozen=True)
class Timeline:
    spans: Sequence[Span]
    seconds: float

    @property
    def totals(self) -> dict[str, float]:
        """Seconds of each kind that there is; calls side by side count each."""
        sums = {kind: sum(span.seconds for span in self.spans if span.kind == kind) for kind in KINDS}
        return {kind: seconds for kind, seconds in sums.items() if seconds}


def timeline(
    turns: Sequence[TurnView], reward: RewardEntry | None, pauses: Sequence[Pause] = ()
) -> Timeline | None:
    """The timeline of `turns`; None where nothing has a time. A verification has no beginning of its own.

    `pauses` may overlap, and come in any order.
    """
    pauses = sorted(pauses, key=lambda pause: pause.since)
    steps = [step for turn in turns for step in _steps(turn)]
    if not steps:
        return None
    begin = at = min(start for _, _, _, start, _ in steps)
    spans: list[Span] = []
    for kind, before, label, start, seconds in steps:
        gaps = _gaps(before, at, start, pauses)
        spans += [Span(gap, KINDS[gap], since - begin, until - since) for gap, since, until in gaps]
        spans.append(Span(kind, label, start - begin, seconds))
        # calls side by side: the longest ends last, wherever it stands
        at = max(at, start + seconds)
    if reward is not None:
        spans.append(Span("verify", "verification", at - begin, reward.seconds))
        at += reward.seconds
    return Timeline(spans, max(at - begin, 0.001))


def _gaps(kind: str, since: float, until: float, pauses: Sequence[Pause]) -> list[tuple[str, float, float]]:
    """The time between two steps: of `kind`, but for the parts in which it was paused."""
    parts = []
    for pause in pauses:
        low, high = max(since, pause.since), min(until, pause.until if pause.until is not None else until)
        if low < high:
            parts += [(kind, since, low), ("pause", low, high)]
            since = high
    parts.append((kind, since, until))
    return [part for part in parts if part[2] - part[1] > LEAST_GAP_SECONDS]


def _steps(turn: TurnView) -> list[tuple[str, str, str, float, float]]:
    """Kind, kind of a gap before it, label, start and seconds of a turn and its calls."""
    steps: list[tuple[str, str, str, float, float]] = []
    if turn.entry is not None and (sampled := turn.entry.sampled) is not None and sampled.started:
        gap = "repair" if turn.repairs else "program" if turn.asked is not None else "wait"
        steps.append(("model", gap, f"turn {turn.number}", sampled.started, sampled.seconds))
    for call in turn.calls:
        if call.entry is not None and call.entry.started:
            gap = "recovery" if call.loss is not None else "wait"
            label = f"turn {turn.number}: {call.entry.tool}"
            steps.append(("tool", gap, label, call.entry.started, call.entry.seconds))
    return steps
