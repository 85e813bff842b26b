"""A run as one file to keep or send: its items, rewards, lengths, times, failures, settings and versions."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean, quantiles

from markupsafe import Markup

from clotho.errors import InvalidInput
from clotho.evaluation.figures import powers_of_two
from clotho.evaluation.statistics import Estimate, mean_of_items, pass_at
from clotho.identifiers.keys import repairs_prefix
from clotho.journal import Journal
from clotho.journal.store import Store
from clotho.plugins.viewer.listing import Bar, histogram
from clotho.plugins.viewer.overview import Overview, RunFacts
from clotho.plugins.viewer.rendering import FOLDER, Pages
from clotho.plugins.viewer.rollout import RolloutView, read_rollout
from clotho.plugins.viewer.rows import GroupRow, RolloutRow, deviation
from clotho.plugins.viewer.run_index import RunIndexes
from clotho.plugins.viewer.timeline import KINDS, timeline
from clotho.plugins.viewer.workflows import Workflows
from clotho.rollouts.group import RepairEntry
from clotho.rollouts.run import RunManifest
from clotho.runs.manifest import read_capabilities
from clotho.runs.pauses import pauses_of, read_pauses

SAMPLED = 300
"""Rollouts whose steps are read for the times of phases, spread over the run."""
TURNS = 200
"""Turns of each that are read."""
ITEMS = 1_000
"""Items of the table, the first ones."""


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
class ItemRow:
    """An item's groups together."""

    label: str
    groups: Sequence[str]
    rollouts: int
    mean: float
    passed: float
    """The part of its rollouts that passed."""
    turns: float
    tokens: int
    """Sampled by all of its rollouts."""
    repairs: int


@dataclass(frozen=True)
class FailureRow:
    """Failures of one kind."""

    kind: str
    times: int
    outcome: str
    """What came of them."""
    reason: str
    """That of the first."""


@dataclass(frozen=True)
class Report:
    facts: RunFacts
    interval: Estimate
    items: Sequence[ItemRow]
    failures: Sequence[FailureRow]
    settings: Mapping[str, str]
    versions: Mapping[str, str]
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
    # a report is written once: it waits until the whole index is read
    await index.look(None)
    overview = Overview(Journal(store), indexes, workflows)
    facts = await overview.facts(run)
    if not (rows := index.in_order):
        raise InvalidInput(f"run {run} has no scored group yet")
    rollouts = [each for row in rows for each in row.rollouts]
    journal, sample = Journal(store), await _sample(store, rows)
    phases, tools = await _times(journal, facts.run, sample)
    report = Report(
        facts=facts,
        interval=mean_of_items([row.scores for row in rows]),
        items=items_of(rows, success),
        failures=await _failures(journal, overview, run),
        settings=_settings(facts.manifest) if facts.manifest is not None else {},
        versions=await _versions(journal, run, sample),
        passed=passes(rows, success),
        success=success,
        turns=histogram([each.turns for each in rollouts]),
        tokens=histogram([each.tokens for each in rollouts]),
        phases=phases,
        tools=tools,
        sampled=len(sample),
        effects=effects(rollouts),
        spending=await overview.spending(run),
    )
    style = Markup((FOLDER / "static" / "viewer.css").read_text())
    pages = Pages(store=store.identity, operating=False)
    return pages.text("report.html", report=report, sums=facts.sums, style=style, most_items=ITEMS)


def passes(rows: Sequence[GroupRow], success: float) -> dict[int, Estimate]:
    """pass@k for the k of `clotho eval`."""
    scores = [row.scores for row in rows]
    return {k: pass_at(k, scores, success) for k in powers_of_two(min(map(len, scores))) if k}


def items_of(rows: Sequence[GroupRow], success: float) -> list[ItemRow]:
    """A row for each item, in the order in which they were begun."""
    groups: dict[str, list[GroupRow]] = defaultdict(list)
    for row in rows:
        groups[row.item].append(row)
    return [_item(each, success) for each in groups.values() if any(row.rollouts for row in each)]


def _item(rows: Sequence[GroupRow], success: float) -> ItemRow:
    rollouts = [each for row in rows for each in row.rollouts]
    return ItemRow(
        rows[0].label,
        [row.name for row in rows],
        len(rollouts),
        fmean(each.score for each in rollouts),
        fmean(each.score >= success for each in rollouts),
        fmean(each.turns for each in rollouts),
        sum(each.tokens for each in rollouts),
        sum(len(row.failures) for row in rows),
    )


def effects(rollouts: Sequence[RolloutRow]) -> list[Effect]:
    """Rewards and lengths by disturbance: where these differ, dropping such rollouts changes what is measured."""
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


async def _sample(store: Store, rows: Sequence[GroupRow]) -> list[RolloutView]:
    """Up to SAMPLED rollouts, spread over the run, without those whose entries were removed."""
    names = [f"{row.group}/{each.name}" for row in rows for each in row.rollouts]
    journal, found = Journal(store), []
    for name in names[:: math.ceil(len(names) / SAMPLED)]:
        with suppress(InvalidInput):
            found.append(await read_rollout(journal, name, most=TURNS))
    return found


async def _times(
    journal: Journal, run: str, sample: Sequence[RolloutView]
) -> tuple[list[Phase], list[Phase]]:
    """Times by phase and by tool."""
    pauses = await read_pauses(journal, run)
    kinds: dict[str, list[float]] = defaultdict(list)
    tools: dict[str, list[float]] = defaultdict(list)
    for view in sample:
        line = timeline(view.turns, view.reward, pauses_of(pauses, view.rollout))
        for span in line.spans if line is not None else ():
            kinds[KINDS[span.kind]].append(span.seconds)
        for call in (call for turn in view.turns for call in turn.calls):
            if call.entry is not None:
                tools[call.entry.tool].append(call.entry.seconds)
    return phases_of(kinds), phases_of(tools)


async def _failures(journal: Journal, overview: Overview, run: str) -> list[FailureRow]:
    """Failures by kind: those that were repaired, and those with which groups ended that aren't scored."""
    repairs = await journal.read_many(await journal.keys(repairs_prefix(run)), RepairEntry)
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for repair in repairs:
        if repair is not None:
            same = repair.continued_as == repair.failure.workflow
            outcome = "went on from its last turn" if same else "replaced from scratch"
            found[repair.failure.kind, outcome].append(repair.failure.reason)
    for group in await overview.open_groups(run):
        for (kind, reason), times in group.failures.items():
            found[kind, "not scored"] += [reason] * times
    rows = [FailureRow(kind, len(reasons), outcome, reasons[0]) for (kind, outcome), reasons in found.items()]
    return sorted(rows, key=lambda row: -row.times)


def _settings(manifest: RunManifest) -> dict[str, str]:
    """All that a run was started with, but for its account, as text."""
    whole = manifest.model_dump(mode="json", exclude={"run", "account"}, exclude_none=True)
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in whole.items()
    }
    return {name: text for name, text in texts.items() if text not in ("{}", "[]", "")}


async def _versions(journal: Journal, run: str, sample: Sequence[RolloutView]) -> dict[str, str]:
    """What the figures depend on, as far as the store knows it."""
    served = await read_capabilities(journal, run)
    turns = [turn.entry.sampled for view in sample for turn in view.turns if turn.entry is not None]
    spans = (
        span
        for each in turns
        if each is not None and each.tokens is not None
        for span in each.tokens.versions
    )
    found = {
        "Clotho that wrote this report": version("clotho-rollouts"),
        "environment's code": ", ".join(
            dict.fromkeys(v.reward.code for v in sample if v.reward and v.reward.code)
        ),
        "model, as its server names it": ", ".join(
            dict.fromkeys(each.model for each in turns if each is not None)
        ),
        "weights": ", ".join(dict.fromkeys(span.version for span in spans)),
        "renderer": served.renderer if served is not None else "",
    }
    return {name: value for name, value in found.items() if value}


def phases_of(times: Mapping[str, Sequence[float]]) -> list[Phase]:
    """The phases of these names and seconds, the longest together first."""
    whole = sum(map(sum, times.values())) or 1.0
    phases = []
    for name, seconds in times.items():
        cuts = quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 9
        total = sum(seconds)
        phases.append(Phase(name, len(seconds), total, total / whole, cuts[4], cuts[8], max(seconds)))
    return sorted(phases, key=lambda phase: -phase.seconds)
