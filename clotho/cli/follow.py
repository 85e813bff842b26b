"""A campaign's progress while it runs, and its groups when it has ended."""

import asyncio
from datetime import timedelta

from rich.console import Console
from rich.live import Live
from rich.table import Table
from temporalio.client import WorkflowFailureError, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.service import RPCError

from clotho.campaigns import CampaignHandle
from clotho.errors import InvalidInput
from clotho.journal import Journal
from clotho.records import CampaignProgress, Ending
from clotho.runs import scored_groups

PERIOD = 0.5


async def follow(console: Console, handle: CampaignHandle, journal: Journal, run: str) -> CampaignProgress:
    """Show the campaign until it ends, then its groups; raises InvalidInput with the reason if it failed."""
    result = asyncio.ensure_future(handle.result())
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        while not result.done():
            progress = await current_progress(handle)
            if progress is not None:
                live.update(progress_table(progress))
            await asyncio.wait([result], timeout=PERIOD)
    console.print(await groups_table(journal, run))
    try:
        return await result
    except WorkflowFailureError as error:
        raise InvalidInput(failure_text(run, error)) from error


async def current_progress(handle: CampaignHandle) -> CampaignProgress | None:
    """What the campaign says of itself; None while no worker answers for it."""
    try:
        progress: CampaignProgress = await handle.query(
            "progress", result_type=CampaignProgress, rpc_timeout=timedelta(seconds=2)
        )
    except (RPCError, WorkflowQueryFailedError):
        return None
    return progress


def progress_table(progress: CampaignProgress) -> Table:
    table = Table(
        "groups scored", "running", "failed", "rollouts", "turns", "tool calls", "tokens", "mean reward"
    )
    mean = f"{progress.reward_sum / progress.rollouts:.3f}" if progress.rollouts else "-"
    table.add_row(
        f"{progress.scored + progress.skipped}/{progress.groups}",
        str(progress.running),
        str(progress.failed),
        str(progress.rollouts),
        str(progress.turns),
        str(progress.tool_calls),
        f"{progress.sampled_tokens:,}",
        mean,
    )
    return table


async def groups_table(journal: Journal, run: str) -> Table:
    """A row for each scored group of the run."""
    table = Table("group", "rewards", "turns", "tokens", "outcomes", title=f"run {run}")
    for group, entry in await scored_groups(journal, run):
        siblings = entry.siblings
        endings = [ending_text(sibling.ending) for sibling in siblings]
        table.add_row(
            group.partition("/")[2],
            " ".join(f"{sibling.score:g}" for sibling in siblings),
            " ".join(str(sibling.turns) for sibling in siblings),
            f"{sum(sibling.sampled_tokens for sibling in siblings):,}",
            ", ".join(f"{endings.count(text)} {text}" for text in sorted(set(endings))),
        )
    return table


def ending_text(ending: Ending) -> str:
    return f"{ending.outcome}({ending.limit})" if ending.limit else str(ending.outcome)


def failure_text(run: str, error: WorkflowFailureError) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, CancelledError):
        return f"run {run} was cancelled; start it again to go on"
    kind = f"{cause.type}: " if isinstance(cause, ApplicationError) and cause.type else ""
    return f"run {run} failed: {kind}{cause}"
