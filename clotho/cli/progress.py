"""A run's progress as it is shown while one waits: a table on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table

from clotho.cli.terminal import amount, one_line, sanitized_text
from clotho.rollouts.campaign import CampaignProgress
from clotho.rollouts.rollout import Work
from clotho.runs.counts import RunCounts

LINE_SECONDS = 5.0
UNCHANGED_LINE_SECONDS = 60.0
WAITING = "waiting for the campaign's first step"


@dataclass(frozen=True)
class View:
    """A run's progress at one moment."""

    progress: CampaignProgress | None = None
    """The campaign's progress; None before a worker answers."""
    counts: RunCounts | None = None
    """The run's counts; None before they were first counted."""
    group_size: int = 1
    seconds_left: float | None = None
    """Seconds that the run may still take; None where it can't be told."""
    trouble: str | None = None
    """The reason why the run makes no headway."""

    @property
    def totals(self) -> Work:
        """Work done; without counts what the campaign knows, which counts scored groups since it began."""
        return self.counts or self.progress or Work()


Display = Callable[[View], None]
"""Shows what a run has come to, and what holds it up."""


def live_table(view: View) -> Group:
    table = progress_table(view) if view.progress else WAITING
    return Group(table, sanitized_text(view.trouble or "", "yellow"))


class Lines:
    """A line every few seconds while something changes, and one a minute while nothing does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = self._at = time.monotonic()
        self._said = ""

    def show(self, view: View) -> None:
        line = progress_line(view) if view.progress else WAITING
        line = f"{line}; {view.trouble}" if view.trouble else line
        now = time.monotonic()
        if now - self._at >= (UNCHANGED_LINE_SECONDS if line == self._said else LINE_SECONDS):
            minutes, seconds = divmod(round(now - self._started), 60)
            left = f"; {left_text(view)}" if view.seconds_left is not None else ""
            one_line(self._console, f"{minutes}:{seconds:02} {line}{left}")
            self._at, self._said = now, line


class TimeLeft:
    """Estimate of the time that a run still takes, from the rollouts scored since watching began."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def seconds_left(self, view: View) -> float | None:
        """Seconds that the run may still take; None before a rollout was scored, and while the run is paused."""
        if view.progress is None or view.counts is None or view.progress.paused is not None:
            return None
        now, scored = time.monotonic(), view.counts.rollouts
        # from the first look: a run that was resumed has rollouts that took no time of this watch
        if self._first is None:
            self._first = now, scored
        since, before = self._first
        left = view.progress.groups * view.group_size - scored
        return left * (now - since) / (scored - before) if scored > before else None


def progress_table(view: View) -> Table:
    progress, totals = view.progress, view.totals
    assert progress is not None
    cells = {
        "groups scored": f"{progress.scored + progress.skipped}/{progress.groups}",
        state(progress): str(progress.running),
        "failed": str(progress.failed),
        "rollouts": rollouts_text(view),
        "turns": str(totals.turns),
        "tool calls": str(totals.tool_calls),
        "tokens": f"{totals.sampled_tokens:,}",
        "mean reward": mean_reward(totals),
        "left": left_text(view),
    }
    table = Table(*cells)
    table.add_row(*cells.values())
    return table


def progress_line(view: View) -> str:
    progress, totals = view.progress, view.totals
    assert progress is not None
    return (
        f"{progress.scored + progress.skipped}/{progress.groups} groups scored, {progress.running} "
        f"{state(progress)}, {progress.failed} failed; {rollouts_text(view)} rollouts, "
        f"{amount(totals.turns, 'turn')}, {amount(totals.tool_calls, 'tool call')}, "
        f"{amount(totals.sampled_tokens, 'token')}, mean reward {mean_reward(totals)}"
    )


def state(progress: CampaignProgress) -> str:
    """The state of the open groups."""
    return "running" if progress.paused is None else "paused"


def rollouts_text(view: View) -> str:
    assert view.progress is not None
    totals, counts = view.totals, view.counts or RunCounts()
    others = [f"{len(counts.failed)} failed"] if counts.failed else []
    others += [f"{counts.paused} paused"] if counts.paused else []
    noted = f" ({', '.join(others)})" if others else ""
    return f"{totals.rollouts}/{view.progress.groups * view.group_size}{noted}"


def mean_reward(totals: Work) -> str:
    return f"{totals.reward_sum / totals.rollouts:.3f}" if totals.rollouts else "-"


def left_text(view: View) -> str:
    seconds = view.seconds_left
    if seconds is None:
        return "-"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5_400 else f"about {seconds / 3600:.1f} h"
