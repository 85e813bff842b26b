"""A campaign's progress as it is shown while one waits: a table on a terminal, a line now and then elsewhere."""

import time
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from clotho.cli.terminal import sanitized_text
from clotho.rollouts.campaign import CampaignProgress

LINE_SECONDS = 5.0
UNCHANGED_LINE_SECONDS = 60.0
WAITING = "waiting for the campaign's first step"


class Display(Protocol):
    """Shows what a run has come to, and what holds it up."""

    def show(self, progress: CampaignProgress | None, trouble: str | None) -> None: ...


class LiveTable:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, progress: CampaignProgress | None, trouble: str | None) -> None:
        table = progress_table(progress) if progress else WAITING
        self._live.update(Group(table, sanitized_text(trouble or "", "yellow")))


class Lines:
    """A line every few seconds while something changes, and one a minute while nothing does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = self._at = time.monotonic()
        self._said = ""

    def show(self, progress: CampaignProgress | None, trouble: str | None) -> None:
        line = progress_line(progress) if progress else WAITING
        line = f"{line}; {trouble}" if trouble else line
        now = time.monotonic()
        if now - self._at >= (UNCHANGED_LINE_SECONDS if line == self._said else LINE_SECONDS):
            minutes, seconds = divmod(round(now - self._started), 60)
            self._console.print(sanitized_text(f"{minutes}:{seconds:02} {line}"), soft_wrap=True)
            self._at, self._said = now, line


def progress_table(progress: CampaignProgress) -> Table:
    table = Table(
        "groups scored", "running", "failed", "rollouts", "turns", "tool calls", "tokens", "mean reward"
    )
    table.add_row(
        f"{progress.scored + progress.skipped}/{progress.groups}",
        str(progress.running),
        str(progress.failed),
        str(progress.rollouts),
        str(progress.turns),
        str(progress.tool_calls),
        f"{progress.sampled_tokens:,}",
        mean_reward(progress),
    )
    return table


def progress_line(progress: CampaignProgress) -> str:
    return (
        f"{progress.scored + progress.skipped}/{progress.groups} groups scored, {progress.running} running, "
        f"{progress.failed} failed; {progress.rollouts} rollouts, {progress.turns} turns, "
        f"{progress.tool_calls} tool calls, {progress.sampled_tokens:,} tokens, "
        f"mean reward {mean_reward(progress)}"
    )


def mean_reward(progress: CampaignProgress) -> str:
    return f"{progress.reward_sum / progress.rollouts:.3f}" if progress.rollouts else "-"
