"""A campaign followed to its end, and its groups when it has ended."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.service import RPCError

from clotho.cli.progress import Display, Lines, TimeLeft, View, live_table
from clotho.cli.terminal import one_line
from clotho.cli.waiting import stall_reason
from clotho.errors import ClothoError, IsolationUnavailable, Unavailable
from clotho.journal import Journal
from clotho.rollouts.campaign import CampaignProgress
from clotho.rollouts.outcome import Ending
from clotho.rollouts.run import PAUSED_BY_HAND
from clotho.runs.campaigns import CampaignHandle
from clotho.runs.counts import RunCounter, RunCounts
from clotho.runs.disturbances import disturbances_of
from clotho.runs.groups import scored_groups
from clotho.runs.items import items_notice
from clotho.runs.states import current_progress

PERIOD = 0.5
TROUBLE_PERIOD = 5.0
COUNT_PERIOD = 1.0
COUNT_SECONDS = 20.0
GROUPS_SHOWN = 50


class RunFailed(ClothoError):
    """The campaign ended without its result; the message says why."""


class FollowedLog(Protocol):
    """A log of a run that is followed, such as one at a service."""

    @property
    def address(self) -> str | None:
        """A line that says where it can be read."""

    def show(self, view: View) -> None:
        """Log what the run has come to; called twice a second."""

    async def conclude(self, journal: Journal, run: str) -> None:
        """Log what there is at the end, whether or not the run failed."""


async def follow(
    console: Console,
    client: Client,
    handle: CampaignHandle,
    journal: Journal,
    run: str,
    group_size: int,
    groups: int,
    also: Display = lambda view: None,
) -> CampaignProgress:
    """Show the campaign until it ends, to `also`, too, then its groups; raises RunFailed if it failed.

    `groups`: those that were asked for.
    """
    told = False
    result = asyncio.ensure_future(handle.result())
    troubles, time_left, counting = (
        StallMonitor(client, run),
        TimeLeft(),
        Counting(RunCounter(journal, client, run)),
    )
    # beside the display: counting a large run takes seconds, in which the display would stand still
    watch = asyncio.create_task(counting.watch())
    try:
        with display_on(console) as display:
            view = View(group_size=group_size)
            while not result.done():
                # no worker answers a query now and then: the last answer is shown on
                progress = await current_progress(handle) or view.progress
                trouble = stopped_by(progress, counting.counts) or await troubles.now()
                view = replace(view, progress=progress, counts=counting.counts, trouble=trouble)
                if not told and progress is not None and progress.groups:
                    told = True
                    if notice := await items_notice(journal, run, progress.groups, groups):
                        one_line(console, notice)
                display(replace(view, seconds_left=time_left.seconds_left(view)))
                also(view)
                await asyncio.wait([result], timeout=PERIOD)
    finally:
        # the waiting alone ends: the run goes on
        result.cancel()
        watch.cancel()
    await show_groups(console, journal, run)
    return await ended_well(run, result)


async def ended_well(run: str, result: Awaitable[CampaignProgress]) -> CampaignProgress:
    """The campaign's result. Raises RunFailed, or IsolationUnavailable where no sandbox could be had."""
    try:
        return await result
    except WorkflowFailureError as error:
        raise run_failure(run, error) from None


@contextmanager
def display_on(console: Console) -> Iterator[Display]:
    if not console.is_terminal or console.is_dumb_terminal:  # what can't move its cursor shows no live table
        yield Lines(console).show
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield lambda view: live.update(live_table(view))


class Counting:
    """The counts of a run, brought up to date beside whatever shows them."""

    def __init__(self, counter: RunCounter) -> None:
        self._counter = counter
        self.counts: RunCounts | None = None

    async def watch(self) -> None:
        """Never returns; keeps the last counts while Temporal or the store can't tell."""
        while True:
            self.counts = await count_now(self._counter) or self.counts
            await asyncio.sleep(COUNT_PERIOD)


async def count_now(counter: RunCounter) -> RunCounts | None:
    """The run's counts; None where Temporal or the store can't tell now."""
    try:
        async with asyncio.timeout(COUNT_SECONDS):  # the client itself tries again for ever
            return await counter.count()
    except (RPCError, Unavailable, TimeoutError):
        return None


class StallMonitor:
    """Looks now and then for why a run makes no headway."""

    def __init__(self, client: Client, run: str) -> None:
        self._client = client
        self._run = run
        self._last: str | None = None
        # not at once: what has just been started isn't held up yet
        self._next = asyncio.get_running_loop().time() + TROUBLE_PERIOD / 2

    async def now(self) -> str | None:
        time = asyncio.get_running_loop().time()
        if time >= self._next:
            self._last = await stall_reason(self._client, self._run)
            self._next = time + TROUBLE_PERIOD
        return self._last


def stopped_by(progress: CampaignProgress | None, counts: RunCounts | None) -> str | None:
    """Why the run, or else its first group or rollout that failed, doesn't go on."""
    if progress is None:
        return None
    if progress.paused is not None:
        return paused_text(progress.paused)
    failed = next((f"{failure.workflow}: {failure.reason}" for failure in progress.failures), None)
    return failed or (counts.first_failure if counts is not None else None)


def paused_text(reason: str) -> str:
    if reason == PAUSED_BY_HAND:
        return f"paused: {reason}; `clotho resume` goes on"
    return f"paused: {reason}; mend what there is to mend, then `clotho resume`"


async def show_groups(console: Console, journal: Journal, run: str) -> None:
    """Print the scored groups of the run, if it has any yet."""
    if (table := await groups_table(journal, run)).row_count:
        console.print(table)


async def groups_table(journal: Journal, run: str) -> Table:
    """A row for each scored group of the run, up to GROUPS_SHOWN."""
    # one more than is shown tells whether there are more
    groups = await scored_groups(journal, run, GROUPS_SHOWN + 1)
    more = len(groups) > GROUPS_SHOWN
    caption = f"the first {GROUPS_SHOWN}; `clotho export` has all" if more else None
    table = Table(
        "group", "rewards", "turns", "tokens", "outcomes", "disturbed", title=f"run {run}", caption=caption
    )
    for group, entry in groups[:GROUPS_SHOWN]:
        siblings = entry.siblings
        endings = [ending_text(sibling.ending) for sibling in siblings]
        table.add_row(
            group.partition("/")[2],
            " ".join(f"{sibling.score:g}" for sibling in siblings),
            " ".join(str(sibling.turns) for sibling in siblings),
            f"{sum(sibling.sampled_tokens for sibling in siblings):,}",
            counted(endings),
            counted([str(kind) for one in siblings for kind in disturbances_of(one, entry.repairs)]),
        )
    return table


def counted(words: list[str]) -> str:
    return ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))


def ending_text(ending: Ending) -> str:
    return f"{ending.outcome}({ending.limit})" if ending.limit else str(ending.outcome)


def run_failure(run: str, error: WorkflowFailureError) -> ClothoError:
    """IsolationUnavailable where no sandbox could be had, else RunFailed."""
    cause = first_cause(error)
    if isinstance(cause, ApplicationError) and cause.type == IsolationUnavailable.__name__:
        return IsolationUnavailable(cause.message)
    return RunFailed(failure_text(run, error))


def failure_text(run: str, error: WorkflowFailureError) -> str:
    cause = first_cause(error)
    if isinstance(cause, CancelledError):
        return f"run {run} was cancelled; start it again to go on"
    return f"run {run} failed: {cause}"


def first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
