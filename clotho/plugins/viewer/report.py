"""A run as one file to keep or send: its rewards, lengths, times, failures, and what disturbances did to them."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles

from markupsafe import Markup

from clotho.errors import InvalidInput
from clotho.evaluation.figures import powers_of_two
from clotho.evaluation.statistics import Estimate, mean_of_items, pass_at
from clotho.journal import Journal
from clotho.journal.store import Store
from clotho.plugins.viewer.listing import Bar, histogram
from clotho.plugins.viewer.overview import Overview, RunFacts
from clotho.plugins.viewer.rendering import FOLDER, Pages
from clotho.plugins.viewer.rollout import read_rollout
from clotho.plugins.viewer.rows import GroupRow, RolloutRow, deviation
from clotho.plugins.viewer.run_index import RunIndexes
from clotho.plugins.viewer.timeline import KINDS, timeline
from clotho.plugins.viewer.workflows import Workflows
from clotho.runs.pauses import pauses_of, read_pauses

SAMPLED = 300
"""Rollouts whose steps are read for the times of phases, spread over the run."""
TURNS = 200
"""Turns of each that are read."""
POINTS = 60
"""Points of the curve of rewards."""


@dataclass(frozen=True)
class Phase:
    """Times of steps of one kind."""

    name: str
    steps: int
    seconds: float
    """Of all of them."""
    share: float
    """Of the time of all phases."""
    median: float
    p90: float
    longest: float


@dataclass(frozen=True)
class Effect:
    """Rollouts with a disturbance, beside those without any."""

    name: str
    rollouts: int
    mean: float
    error: float
    """The standard error of the mean reward."""
    turns: float
    tokens: float


@dataclass(frozen=True)
class Curve:
    """Mean rewards in the order in which groups were begun."""

    points: Sequence[tuple[float, float]]
    """From 0 to 1 in both directions."""
    low: float
    high: float
    groups_per_point: int


@dataclass(frozen=True)
class Report:
    facts: RunFacts
    interval: Estimate
    curve: Curve
    passed: Mapping[int, Estimate]
    """k -> pass@k."""
    success: float
    turns: Sequence[Bar]
    tokens: Sequence[Bar]
    phases: Sequence[Phase]
    tools: Sequence[Phase]
    sampled: int
    effects: Sequence[Effect]
    spending: str | None
    """What it has spent, where it has a budget or prices."""


async def write_report(
    store: Store, indexes: RunIndexes, workflows: Workflows, run: str, success: float
) -> str:
    """The report on a run as HTML. Raises InvalidInput for a run without a scored group."""
    index = indexes.of(run)
    await index.look(None)
    overview = Overview(Journal(store), indexes, workflows)
    facts = await overview.facts(run)
    if not (rows := index.in_order):
        raise InvalidInput(f"run {run} has no scored group yet")
    rollouts = [each for row in rows for each in row.rollouts]
    phases, tools, sampled = await _times(store, facts.run, rows)
    report = Report(
        facts=facts,
        interval=mean_of_items([row.scores for row in rows]),
        curve=curve_of([row.mean for row in rows]),
        passed=passes(rows, success),
        success=success,
        turns=histogram([each.turns for each in rollouts]),
        tokens=histogram([each.tokens for each in rollouts]),
        phases=phases,
        tools=tools,
        sampled=sampled,
        effects=effects(rollouts),
        spending=await overview.spending(run),
    )
    style = Markup((FOLDER / "static" / "viewer.css").read_text())
    pages = Pages(store=store.identity, operating=False)
    return pages.text("report.html", report=report, sums=facts.sums, style=style)


def passes(rows: Sequence[GroupRow], success: float) -> dict[int, Estimate]:
    """pass@k for the k of `clotho eval`."""
    scores = [row.scores for row in rows]
    return {k: pass_at(k, scores, success) for k in powers_of_two(min(map(len, scores))) if k}


def curve_of(means: Sequence[float]) -> Curve:
    each = math.ceil(len(means) / POINTS)
    values = [fmean(means[start : start + each]) for start in range(0, len(means), each)]
    low, high = min(values), max(values)
    width, span = max(1, len(values) - 1), high - low or 1.0
    points = [(at / width, (value - low) / span) for at, value in enumerate(values)]
    return Curve(points, low, high, each)


def effects(rollouts: Sequence[RolloutRow]) -> list[Effect]:
    """Rewards and lengths by disturbance: where they differ, leaving such rollouts out or in selects."""
    kinds = list(dict.fromkeys(kind for each in rollouts for kind in each.disturbances))
    parts = {"not disturbed": [each for each in rollouts if not each.disturbances]}
    parts |= {kind: [each for each in rollouts if kind in each.disturbances] for kind in kinds}
    return [_effect(name, part) for name, part in parts.items() if part]


def _effect(name: str, part: Sequence[RolloutRow]) -> Effect:
    scores = [each.score for each in part]
    return Effect(
        name,
        len(part),
        fmean(scores),
        deviation(scores) / math.sqrt(len(part)),
        fmean([each.turns for each in part]),
        fmean([each.tokens for each in part]),
    )


async def _times(store: Store, run: str, rows: Sequence[GroupRow]) -> tuple[list[Phase], list[Phase], int]:
    """Times by phase and by tool, of a sample; and its size."""
    names = [f"{row.group}/{each.name}" for row in rows for each in row.rollouts]
    chosen = names[:: math.ceil(len(names) / SAMPLED)]
    journal = Journal(store)
    pauses = await read_pauses(journal, run)
    kinds: dict[str, list[float]] = defaultdict(list)
    tools: dict[str, list[float]] = defaultdict(list)
    read = 0
    for name in chosen:
        try:
            view = await read_rollout(journal, name, most=TURNS)
        except InvalidInput:
            continue  # its entries were removed
        read += 1
        if (line := timeline(view.turns, view.reward, pauses_of(pauses, name))) is not None:
            for span in line.spans:
                kinds[KINDS[span.kind]].append(span.seconds)
        for call in (call for turn in view.turns for call in turn.calls if call.entry is not None):
            assert call.entry is not None
            tools[call.entry.tool].append(call.entry.seconds)
    return phases_of(kinds), phases_of(tools), read


def phases_of(times: Mapping[str, Sequence[float]]) -> list[Phase]:
    """The phases of these names and seconds, the longest together first."""
    whole = sum(map(sum, times.values())) or 1.0
    phases = []
    for name, seconds in times.items():
        cuts = quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 9
        total = sum(seconds)
        phases.append(Phase(name, len(seconds), total, total / whole, cuts[4], cuts[8], max(seconds)))
    return sorted(phases, key=lambda phase: -phase.seconds)
