"""A run's results in a few lines: at the end of `clotho run`, in `clotho status RUN`, and in notebooks."""

from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from clotho.cli.terminal import amount, one_line, rerun_command, sanitized_text
from clotho.config import Settings
from clotho.evaluation.statistics import Estimate
from clotho.evaluation.summary import RunSummary


def show_summary(console: Console, settings: Settings, summary: RunSummary) -> None:
    """The run's results, and the commands to go on with."""
    table = Table.grid(padding=(0, 2))
    for name, text in summary_rows(summary).items():
        table.add_row(Text(name, "bold"), sanitized_text(text))
    console.print(table)
    for command in next_commands(summary, settings):
        one_line(console, f"  {command}")


def summary_rows(summary: RunSummary) -> dict[str, str]:
    """A line for each of: the run, its groups, rewards and work of those that are scored, and failures."""
    rows = {"run": _run(summary), "groups": _groups(summary)}
    if summary.figures.reward is not None:
        rows["reward"] = _rewards(summary)
    if summary.scored:
        rows["work"] = _work(summary)
    for number, failure in enumerate(summary.failures):
        reason = failure.reason.splitlines()[-1] if failure.reason else ""
        text = f"{amount(failure.rollouts, 'rollout')}: {failure.kind}: {reason[:300]}"
        rows["failed" if number == 0 else f"failed {number + 1}"] = text
    return rows


def next_commands(summary: RunSummary, settings: Settings) -> list[str]:
    """The three commands that one needs next."""
    run = summary.run
    if summary.paused is not None and summary.state != "scored":
        words = [f"resume {run}", f"show {run}", f"status {run} --all"]
    elif summary.state == "running":
        words = [f"show {run}", "view", f"pause {run}"]
    elif summary.scored == 0:
        words = [f"status {run} --all", "doctor", f"retry {run}"]
    elif summary.scored < summary.groups:
        words = [f"retry {run}", f"show {run}", f"export {run} --output {run}.jsonl"]
    else:
        words = [f"show {run}", "view", f"export {run} --output {run}.jsonl"]
    return [rerun_command(each, settings) for each in words]


def duration_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:.1f} h"


def started_text(started: float | None) -> str:
    return "-" if started is None else f"{datetime.fromtimestamp(started):%Y-%m-%d %H:%M}"


def cost_text(cost: float | None) -> str:
    return "-" if cost is None else f"${cost:,.4g}"


def _run(summary: RunSummary) -> str:
    rests = summary.paused is not None and summary.state != "scored"
    parts = [summary.run, f"paused: {summary.paused}" if rests else summary.state]
    parts.append(f"{summary.figures.environment}, {summary.figures.model}")
    if summary.started is not None:
        parts.append(f"started {started_text(summary.started)}")
    if summary.seconds is not None:
        parts.append(duration_text(summary.seconds))
    return " · ".join(parts)


def _groups(summary: RunSummary) -> str:
    flat = summary.without_signal
    parts = [f"{summary.scored:,}/{summary.groups:,} groups scored", amount(summary.rollouts, "rollout")]
    if flat:
        parts.append(f"{amount(flat, 'group')} without a signal: all rewards are the same")
    return " · ".join(parts)


def _rewards(summary: RunSummary) -> str:
    figures = summary.figures
    assert figures.reward is not None
    text = f"mean {_estimate(figures.reward)}"
    if (passed := figures.pass_at.get(1)) is not None and passed.mean != figures.reward.mean:
        text += f" · pass@1 {_estimate(passed)}"
    return text if passed is None or passed.mean != figures.reward.mean else f"{text} (also pass@1)"


def _estimate(estimate: Estimate) -> str:
    if not estimate.told:
        return f"{estimate.mean:.3f}"
    return f"{estimate.mean:.3f} (95 %: {estimate.low:.3f} to {estimate.high:.3f})"


def _work(summary: RunSummary) -> str:
    parts = [
        amount(summary.turns, "turn"),
        amount(summary.tool_calls, "tool call"),
        f"{amount(summary.prompt_tokens, 'prompt token')}, {summary.sampled_tokens:,} sampled",
    ]
    if summary.cost is not None:
        parts.append(cost_text(summary.cost))
    return " · ".join(parts)
