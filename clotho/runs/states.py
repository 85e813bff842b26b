"""The state of a run, in a few words, and its campaign's progress, as Temporal has them."""

import asyncio

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.service import RPCError

from clotho.identifiers.ids import campaign_id
from clotho.journal import Journal
from clotho.rollouts.campaign import CampaignProgress
from clotho.runs.adapter_runs import adapter_groups, read_adapter_config
from clotho.runs.campaigns import CampaignHandle
from clotho.runs.items import items_notice
from clotho.runs.pauses import reason_for
from clotho.temporal.search_attributes import work_of
from clotho.temporal.states import describe

SERVER_SECONDS = 5.0
QUERY_SECONDS = 2.0
ITEMS_SECONDS = 5.0
"""Seconds that a run which isn't followed is given to list its items."""
ITEMS_PERIOD = 0.1
NOT_KNOWN = "-"


async def run_state(
    journal: Journal, client: Client | None, run: str, scored: int | None, target: int | None
) -> str:
    """The state of a run with `scored` of `target` groups, in a few words; NOT_KNOWN without an answer."""
    paused = await reason_for(journal, run) is not None
    drawn = await read_adapter_config(journal, run) is not None
    # first: what is scored needs no answer of Temporal, which may be gone or have forgotten the run
    if target and scored is not None and scored >= target and not drawn:
        return "scored"
    if client is None:
        return "paused" if paused else NOT_KNOWN
    try:
        async with asyncio.timeout(SERVER_SECONDS):  # the client itself tries again for ever
            state = await (_drawn_state(journal, client, run) if drawn else _campaign_state(client, run))
    except (RPCError, TimeoutError):
        return NOT_KNOWN
    return "paused" if paused and state == "running" else state


async def _drawn_state(journal: Journal, client: Client, run: str) -> str:
    """The state of a run that an adapter drives."""
    running = await client.count_workflows(f"{work_of(run)} AND ExecutionStatus = 'Running'")
    return "running" if running.count else f"{len(await adapter_groups(journal, run))} drawn"


async def _campaign_state(client: Client, run: str) -> str:
    if (described := await describe(client, campaign_id(run))) is None:
        return "not in this Temporal"
    ended = {
        WorkflowExecutionStatus.RUNNING: "running",
        # a run with all its groups was `scored` above
        WorkflowExecutionStatus.COMPLETED: "incomplete",
        WorkflowExecutionStatus.CANCELED: "cancelled",
    }
    status = described.status
    return ended.get(status, status.name.lower()) if status is not None else NOT_KNOWN


async def current_progress(handle: CampaignHandle) -> CampaignProgress | None:
    """The campaign's own progress; None while no worker answers for it."""
    try:
        async with asyncio.timeout(QUERY_SECONDS):  # the client itself tries again for ever
            progress: CampaignProgress = await handle.query("progress", result_type=CampaignProgress)
    except (RPCError, WorkflowQueryFailedError, TimeoutError):
        return None
    return progress


async def items_notice_at_start(journal: Journal, handle: CampaignHandle, run: str, asked: int) -> str | None:
    """A notice about the items of a run that has just been started; None if no worker lists them soon."""
    result = asyncio.ensure_future(handle.result())
    try:
        async with asyncio.timeout(ITEMS_SECONDS):
            while not result.done():
                progress = await current_progress(handle)
                if progress is not None and progress.groups:
                    return await items_notice(journal, run, progress.groups, asked)
                await asyncio.wait([result], timeout=ITEMS_PERIOD)
    except TimeoutError:
        pass
    finally:
        # the waiting alone ends: the campaign runs on
        result.cancel()
    return None
