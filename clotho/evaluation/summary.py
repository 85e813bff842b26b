"""A run at a glance: its state, its work, its cost and its figures, as commands and the Python API tell them."""

from collections.abc import Sequence

from temporalio.client import Client

from clotho.evaluation.figures import Figures, figures_of
from clotho.evaluation.results import RunResults, read_results
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry, SiblingFailure
from clotho.runs.budgets import RunLedger, read_budget
from clotho.runs.manifest import opened_at
from clotho.runs.pauses import reason_for
from clotho.runs.states import run_state


class Failures(FrozenModel):
    """Rollouts that failed alike, in groups that aren't scored."""

    kind: str
    rollouts: int
    reason: str
    """The reason of the first one."""


class RunSummary(FrozenModel):
    """A run so far. Its figures are those of scored groups."""

    run: str
    state: str
    """running, paused, scored, incomplete, cancelled or failed; - where Temporal doesn't tell."""
    paused: str | None
    """Why it is paused."""
    started: float | None
    """Unix time at which it was first asked for."""
    seconds: float | None
    """From then until its last group was scored; None before the first one."""
    groups: int
    """Groups that it is to have."""
    group_size: int
    scored: int
    """Scored groups."""
    rollouts: int
    """Scored rollouts."""
    without_signal: int
    """Scored groups of several rollouts that all have the same reward: a trainer learns nothing from them."""
    turns: int
    tool_calls: int
    prompt_tokens: int
    sampled_tokens: int
    cost: float | None
    """US dollars; None for a run without prices."""
    failures: tuple[Failures, ...]
    figures: Figures


async def read_summary(
    journal: Journal, run: str, client: Client | None = None, success: float = 1.0
) -> RunSummary:
    """Read the run, and its state from Temporal if `client` is given. Raises InvalidInput for an unknown run."""
    results = await read_results(journal, run)
    groups = results.groups
    rollouts = [each for entry in groups for each in entry.siblings]
    started = await opened_at(journal, run)
    ends = [entry.ended for entry in groups if entry.ended is not None]
    return RunSummary(
        run=run,
        state=await run_state(journal, client, run, len(groups), results.items),
        paused=await reason_for(journal, run),
        started=started,
        seconds=max(ends) - started if started is not None and ends else None,
        groups=results.items,
        group_size=results.manifest.group_size,
        scored=len(groups),
        rollouts=len(rollouts),
        without_signal=sum(map(_is_flat, groups)),
        turns=sum(each.turns for each in rollouts),
        tool_calls=sum(each.tool_calls for each in rollouts),
        prompt_tokens=sum(each.prompt_tokens for each in rollouts),
        sampled_tokens=sum(each.sampled_tokens for each in rollouts),
        cost=await run_cost(journal, run),
        failures=failures_of(results),
        figures=figures_of(results, success),
    )


async def run_cost(journal: Journal, run: str) -> float | None:
    """The run's cost so far, in US dollars; None for one without prices."""
    entry = await read_budget(journal, run)
    if entry is None or entry.price is None:
        return None
    return (await RunLedger(journal, run).spending()).cost(entry.price)


def failures_of(results: RunResults) -> tuple[Failures, ...]:
    """The most frequent kind first."""
    return tuple(
        Failures(kind=kind, rollouts=count, reason=_first_of(kind, results.failures))
        for kind, count in results.failed.items()
    )


def _first_of(kind: str, failures: Sequence[SiblingFailure]) -> str:
    return next(failure.reason for failure in failures if failure.kind == kind)


def _is_flat(entry: GroupEntry) -> bool:
    scores = {each.score for each in entry.siblings}
    return len(entry.siblings) > 1 and len(scores) == 1
