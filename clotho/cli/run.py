"""`clotho run`: start a run, or resume the one of that name, and follow it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from temporalio.client import Client
from temporalio.service import RPCError

from clotho.cli import run_options as option
from clotho.cli.deployment_notices import stopping_notice
from clotho.cli.dry_run import DryRun
from clotho.cli.follow import FollowedLog, RunFailed, follow
from clotho.cli.interruption import Interrupted, Interruption
from clotho.cli.operate import say_changed
from clotho.cli.options import Address, Store, open_journal
from clotho.cli.progress import View
from clotho.cli.run_file import save_run_file
from clotho.cli.summary import show_summary
from clotho.cli.terminal import make_console, one_line, rerun_command
from clotho.config import Settings, load_settings
from clotho.errors import InvalidInput
from clotho.evaluation.summary import read_summary
from clotho.identifiers.ids import campaign_id
from clotho.journal import Journal
from clotho.plugin import load_with_needs, plugins
from clotho.rollouts.run import RunManifest
from clotho.runs.campaigns import CampaignHandle
from clotho.runs.groups import is_large
from clotho.runs.request import RunRequest
from clotho.runs.starting import messages_before_start, start, with_model_name
from clotho.runs.states import items_notice_at_start
from clotho.temporal.connection import connect
from clotho.temporal.search_attributes import workflow_link

OpenLog = Callable[[Journal, RunManifest], AbstractAsyncContextManager[FollowedLog]]


@option.with_run_options
@option.with_run_logs
def command(
    context: typer.Context,
    environment: option.Environment,
    run: option.Run,
    model: option.Model = None,
    groups: option.ChosenGroups = None,
    group_size: option.GroupSize = 4,
    max_open_groups: option.MaxOpenGroups = 16,
    items: option.Items = None,
    priority: option.Priority = None,
    detach: option.Detach = False,
    dry_run: option.DryRun = False,
    save: Annotated[
        Path | None,
        typer.Option(help="File to write these options to, for `clotho run FILE.yaml`.", metavar="FILE"),
    ] = None,
    store: Store = None,
    temporal: Address = None,
    *,
    logs: Mapping[str, str],
    asked: option.RunOptions,
) -> None:
    """Start a run of ENV, or resume the one of that name, and follow it.

    ENV may also be a YAML file with `environment` and options by their names, such as budget, or set for --set.
    Ctrl-C stops following; the run goes on. Options under Sandbox, Rewards and tool results may also be in
    clotho.yaml, under `run`.
    """
    if save is not None:
        save_run_file(context, save)
    # before anything is started: a log that lacks its package would leave the run unlogged
    opened = run_logs(logs, detach=detach)
    settings = load_settings(store, temporal)
    order = RunRequest(
        manifest=asked.manifest(environment, run, group_size, settings),
        endpoint=asked.endpoint(model),
        groups=groups or asked.number_chosen or option.DEFAULT_GROUPS,
        max_open_groups=max_open_groups,
        items=asked.given_items(items),
        priority=priority,
    )
    if dry_run:
        asyncio.run(shown(DryRun(settings, make_console(), order)))
    else:
        asyncio.run(Following(settings, make_console(), opened).run(order, detach))


async def shown(dry_run: DryRun) -> None:
    await Interruption().ends(dry_run.show())


@dataclass(frozen=True)
class Following:
    """One `clotho run`: the run is started, then watched as long as the user likes."""

    settings: Settings
    console: Console
    logs: Sequence[OpenLog] = ()
    """Further logs of the run while it is followed, such as wandb's."""

    async def run(self, order: RunRequest, detach: bool) -> None:
        """Start the run and follow it. Raises Interrupted, the exit status 130, at a signal."""
        interruption, run = Interruption(), order.manifest.run
        started = False
        try:
            journal, client, handle = await interruption.ends(self.start(order))
            started = True
            link = workflow_link(self.settings.temporal.ui, client.namespace, campaign_id(run))
            self.say(f"run {run}: {link}")
            if detach:
                at_start = items_notice_at_start(journal, handle, run, order.groups)
                if notice := await interruption.ends(at_start):
                    self.say(notice)
                try:
                    stopping = await interruption.ends(stopping_notice(client))
                except RPCError as error:
                    stopping = f"whether workers get this work isn't known: {error.message}"
                if stopping:
                    self.say(stopping)
                self.say(f"it goes on by itself; to see how: {rerun_command(f'status {run}', self.settings)}")
            else:
                await interruption.ends(self.follow(client, handle, journal, order))
        except Interrupted:
            if started:
                self.say(
                    f"the run goes on; give the same command to follow it again, or see: "
                    f"{rerun_command(f'status {run}', self.settings)}"
                )
            raise

    async def follow(
        self, client: Client, handle: CampaignHandle, journal: Journal, order: RunRequest
    ) -> None:
        async with AsyncExitStack() as stack:
            logs = [await stack.enter_async_context(log(journal, order.manifest)) for log in self.logs]
            for log in logs:
                if log.address is not None:
                    self.say(log.address)

            def show(view: View) -> None:
                for log in logs:
                    log.show(view)

            manifest = order.manifest
            try:
                await follow(
                    self.console,
                    client,
                    handle,
                    journal,
                    manifest.run,
                    manifest.group_size,
                    order.groups,
                    show,
                )
            except RunFailed:
                # not in a finally: who stops following leaves the run going, so that its log has no end yet
                await conclude(logs, journal, manifest.run)
                raise
            await conclude(logs, journal, manifest.run)
        # the summary reads every scored group
        if not await is_large(journal, manifest.run):
            show_summary(self.console, self.settings, await read_summary(journal, manifest.run, client))

    async def start(self, order: RunRequest) -> tuple[Journal, Client, CampaignHandle]:
        journal = await open_journal(self.settings)
        for notice in await messages_before_start(journal, order.manifest):
            self.say(notice)
        # before Temporal is asked: of several faults, a model server that refuses is told first
        named = await with_model_name(journal, order)
        client = await connect(self.settings.temporal)
        started = await start(client, journal, named)
        say_changed(self.console, started.changed, started.kept_by)
        return journal, client, started.handle

    def say(self, line: str) -> None:
        one_line(self.console, line)


def run_logs(asked: Mapping[str, str], *, detach: bool) -> list[OpenLog]:
    """Find the logs that options ask for. Raises InvalidInput if one lacks a package, or if nobody follows."""
    if asked and detach:
        raise InvalidInput(f"--{next(iter(asked))} logs while the run is followed: leave --detach out")
    return [
        partial(load_with_needs(plugin, log.target), asked[name])
        for plugin in plugins().values()
        for name, log in plugin.run_logs.items()
        if name in asked
    ]


async def conclude(logs: Sequence[FollowedLog], journal: Journal, run: str) -> None:
    for log in logs:
        await log.conclude(journal, run)
