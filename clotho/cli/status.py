"""`clotho status`: the runs in the store, or one run's groups and what is still open."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from clotho.cli.deployment_notices import deployment_notices
from clotho.cli.doctor.disks import full_disk
from clotho.cli.follow import count_now, paused_text, show_groups
from clotho.cli.options import Address, AsJson, Store, existing_journal
from clotho.cli.progress import View, progress_line
from clotho.cli.run_facts import drawn_text, served_text, settings_text
from clotho.cli.run_states import runs_table, verifying_text, workers_text
from clotho.cli.summary import show_summary
from clotho.cli.terminal import make_console, one_line, print_json, sanitized_text
from clotho.cli.waiting import stall_reason
from clotho.config import Settings, load_settings
from clotho.errors import EnvironmentFailed, InvalidInput
from clotho.escaping import truncate_middle
from clotho.evaluation.summary import read_summary
from clotho.identifiers.ids import campaign_id, checked_run_name
from clotho.journal import Journal
from clotho.models.pacing import pace_texts
from clotho.plugin import load, plugins
from clotho.rollouts.run import RunManifest
from clotho.runs.adapter_runs import read_adapter_config
from clotho.runs.budgets import budget_text
from clotho.runs.campaigns import campaign_handle
from clotho.runs.counts import RunCounter
from clotho.runs.groups import is_large
from clotho.runs.manifest import list_runs, read_capabilities, read_endpoint, read_manifest
from clotho.runs.pauses import paused_parts, reason_for
from clotho.runs.states import current_progress
from clotho.temporal.connection import connect
from clotho.temporal.failures import Failure, failure_of
from clotho.temporal.search_attributes import run_link, work_of, workflow_link
from clotho.temporal.states import is_running

ANSWER_SECONDS = 10.0
"""Seconds for what Temporal is asked about a run, and for connecting to it."""
NO_ANSWER = f"Temporal gives no answer within {ANSWER_SECONDS:g} s"
OPEN_SHOWN = 50
PAUSED_SHOWN = 10
REASON_SHOWN = 120
TRACEBACKS_SHOWN = 3


def command(
    run: Annotated[str | None, typer.Argument(help="A run's name; all runs if absent.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show all settings, and the open and failed workflows, too.")
    ] = False,
    as_json: AsJson = False,
    store: Store = None,
    temporal: Address = None,
) -> None:
    """Show the runs in the store, or what one run has come to: its groups, rewards, work, cost and failures."""
    settings = load_settings(store, temporal)
    console = make_console()

    async def show() -> None:
        journal = await existing_journal(settings)
        names = await list_runs(journal) if run is None else [checked_run_name(run)]
        manifest = None if run is None else await read_manifest(journal, names[0])
        full = await asyncio.to_thread(full_disk, settings)
        if as_json:
            client, _ = await client_if_any(settings, full)
            summaries = [await read_summary(journal, name, client) for name in names]
            print_json(summaries if run is None else summaries[0])
            return
        if manifest is None:
            client, missing = await client_if_any(settings, full)
            console.print(await runs_table(journal, client))
            if client is not None:
                await show_warnings(console, client, names)
                await answered(show_versions(console, client))
        else:
            await show_groups(console, journal, manifest.run)
            client, missing = await client_if_any(settings, full)
            if not await is_large(journal, manifest.run):
                show_summary(console, settings, await read_summary(journal, manifest.run, client))
            await show_stored(console, journal, manifest, everything)
            if client is not None and not await answered(
                show_running(console, journal, client, manifest, everything)
            ):
                client, missing = None, NO_ANSWER
            if client is not None:
                await show_warnings(console, client, names)
        if missing is not None:
            one_line(console, f"what runs or failed is not shown: {missing}")
        if full is None:  # workers on a full disk are alive, and can't say so
            one_line(console, await workers_text(journal, client))
        if run is not None and client is not None:
            drawn = await read_adapter_config(journal, run) is not None
            ui, namespace = settings.temporal.ui, client.namespace
            one_line(
                console,
                run_link(ui, namespace, run) if drawn else workflow_link(ui, namespace, campaign_id(run)),
            )

    asyncio.run(show())


async def show_warnings(console: Console, client: Client, runs: Sequence[str]) -> None:
    """Ask plugins what needs attention in these runs."""
    for plugin in plugins().values():
        if plugin.status is not None:
            for text in await load(plugin.status)(client, runs):
                one_line(console, text, "yellow")


async def show_versions(console: Console, client: Client) -> None:
    """Print the notices about the versions of workers; of a single run, `stall_reason` says what stops it."""
    for notice in await deployment_notices(client):
        one_line(console, notice.line, "yellow" if notice.advice is not None else "")


async def client_if_any(settings: Settings, full: str | None) -> tuple[Client | None, str | None]:
    """The connection to Temporal, or the reason why there is none.

    A server on a `full` disk answers some questions, and others never: it isn't asked.
    """
    if full is not None:
        return None, full
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await connect(settings.temporal), None
    except InvalidInput as error:
        return None, str(error)
    except TimeoutError:
        return None, NO_ANSWER


async def answered(shown: Awaitable[None]) -> bool:
    """Whether Temporal answered in time: a client would try again for ever."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await shown
    except (RPCError, TimeoutError):
        return False
    return True


async def show_stored(console: Console, journal: Journal, manifest: RunManifest, everything: bool) -> None:
    """The run's settings and budget, its model server, and the delivery of its items."""
    run = manifest.run
    if (text := settings_text(manifest, everything)) is not None:
        one_line(console, text)
    if (spent := await budget_text(journal, run)) is not None:
        one_line(console, spent)
    if (endpoint := await read_endpoint(journal, run)) is not None:
        for text in await pace_texts(journal, endpoint):
            one_line(console, text)
    if (served := await read_capabilities(journal, run)) is not None:
        one_line(console, served_text(served))
    if (drawn := await drawn_text(journal, run)) is not None:
        one_line(console, drawn)
    if (reason := await reason_for(journal, run)) is not None:
        one_line(console, paused_text(reason), "yellow")
    parts = await paused_parts(journal, run)
    for name in list(parts)[:PAUSED_SHOWN]:
        one_line(console, f"{name} is {paused_text(parts[name])}", "yellow")
    if (more := len(parts) - PAUSED_SHOWN) > 0:
        one_line(console, f"and {more} more groups and rollouts are paused", "yellow")


async def show_running(
    console: Console, journal: Journal, client: Client, manifest: RunManifest, everything: bool
) -> None:
    """The run as Temporal has it: tracebacks of its environment, and what holds it up."""
    run = manifest.run
    workflows = await unfinished_workflows(client, run)
    if not workflows.listed:
        return
    if everything:
        console.print(workflows_table(workflows))
    else:
        for execution, _ in workflows.listed:
            if (text := verifying_text(execution)) is not None:
                one_line(console, f"{execution.id}: {text}")
    for execution, failure in workflows.listed:
        # an exception of the environment's comes with its traceback, below
        if execution.id == campaign_id(run) and failure and failure.kind != EnvironmentFailed.__name__:
            one_line(console, f"the run failed: {failure.kind}: {failure.last_line}", "red")
    for text in author_tracebacks(workflows):
        one_line(console, text, "red")
    if await is_running(client, campaign_id(run)):
        progress = await current_progress(campaign_handle(client, run))
        if progress is not None and progress.groups:
            counts = (
                None if await is_large(journal, run) else await count_now(RunCounter(journal, client, run))
            )
            one_line(console, progress_line(View(progress, counts, manifest.group_size)))
        if trouble := await stall_reason(client, run):
            one_line(console, trouble, "yellow")


@dataclass(frozen=True)
class UnfinishedWorkflows:
    """The run's workflows that are open, or ended without a result and weren't started again: the latest ones."""

    listed: Sequence[tuple[WorkflowExecutionDescription, Failure | None]]
    """The latest ones, each with its failure, if it failed."""
    count: int
    """The number of such workflows, listed or not."""


async def unfinished_workflows(client: Client, run: str) -> UnfinishedWorkflows:
    query = f"{work_of(run)} AND ExecutionStatus != 'Completed' AND ExecutionStatus != 'ContinuedAsNew'"
    count = (await client.count_workflows(query)).count
    found = [execution async for execution in client.list_workflows(query, limit=OPEN_SHOWN)]
    latest = await asyncio.gather(*(client.get_workflow_handle(one.id).describe() for one in found))
    left = [
        current
        for execution, current in zip(found, latest, strict=True)
        # visibility lags, and lists executions: what has completed or was started again is no longer open or failed
        if execution.run_id == current.run_id and current.status is not WorkflowExecutionStatus.COMPLETED
    ]

    failures = await asyncio.gather(*(failure_of(client, one) for one in left))
    return UnfinishedWorkflows(list(zip(left, failures, strict=True)), count)


def workflows_table(workflows: UnfinishedWorkflows) -> Table:
    more = workflows.count > OPEN_SHOWN
    caption = f"of the latest {OPEN_SHOWN} of {workflows.count}; the Temporal UI has all" if more else None
    table = Table("workflow", "status", "started", "reason", title="open or failed", caption=caption)
    for one, failure in workflows.listed:
        reason = f"{failure.kind}: {truncate_middle(failure.last_line, REASON_SHOWN)}" if failure else ""
        table.add_row(
            one.id,
            status_text(one),
            f"{one.start_time:%Y-%m-%d %H:%M:%S}",
            sanitized_text(reason),
        )
    return table


def status_text(execution: WorkflowExecutionDescription) -> str:
    """The workflow's status; of a rollout that is being verified, how long its verifier has been at work."""
    if (text := verifying_text(execution)) is not None:
        return text
    return execution.status.name.lower() if execution.status else "-"


def author_tracebacks(workflows: UnfinishedWorkflows) -> list[str]:
    """The first of the environment's own exceptions, each kind once, with the rollout that met it."""
    found: dict[str, str] = {}
    for one, failure in workflows.listed:
        if failure is not None and failure.kind == EnvironmentFailed.__name__:
            found.setdefault(failure.message, one.id)
    shown = list(found.items())[:TRACEBACKS_SHOWN]
    return [f"{workflow}: the environment raised\n{text}" for text, workflow in shown]
