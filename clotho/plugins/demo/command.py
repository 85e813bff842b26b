"""`clotho demo`: the whole chain on one machine, from sampled turns to exported groups."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from typing import Annotated

import typer
from rich.console import Console
from temporalio.client import Client

from clotho.cli import run_options as option
from clotho.cli.follow import follow
from clotho.cli.interruption import Interrupted, Interruption
from clotho.cli.options import Store, open_journal
from clotho.cli.terminal import amount, make_console, one_line, rerun_command
from clotho.cli.waiting import until_served
from clotho.config import Settings, load_settings
from clotho.embedded.services import Ports, Services, local_services
from clotho.errors import InvalidInput
from clotho.identifiers.ids import campaign_id
from clotho.journal import Journal
from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint
from clotho.models.rendering.rendering import Rendering
from clotho.plugins.demo import crashes
from clotho.plugins.demo.training import GROUPS_PER_BATCH, TrainingChain
from clotho.runs.campaigns import start_campaign
from clotho.runs.export import Format, export_run
from clotho.runs.manifest import taken_names
from clotho.runs.request import RunRequest, run_manifest
from clotho.temporal.connection import connect
from clotho.temporal.search_attributes import workflow_link

ENVIRONMENT = "file_tasks"


def command(
    groups: option.Groups = 12,
    group_size: option.GroupSize = 4,
    keep: Annotated[bool, typer.Option(help="Keep the services up at the end, until Ctrl-C.")] = False,
    crash: Annotated[
        bool, typer.Option(help="Kill workers and a sandbox on the way, and count the cost.")
    ] = False,
    atropos: Annotated[
        bool,
        typer.Option(help="Train instead of export: through Atropos' API to a trainer that checks batches."),
    ] = False,
    tokens: Annotated[
        bool, typer.Option(help="Sample with token ids and logprobs, so that the result is training data.")
    ] = False,
    store: Store = None,
) -> None:
    """Start all services, roll out file_tasks with the embedded model, and export the results."""
    if crash and atropos:
        raise InvalidInput("--crash and --atropos are two demonstrations: give one")
    if crash and tokens:
        raise InvalidInput("--crash counts answers in chat mode: leave --tokens out")
    settings = load_settings(store)
    demonstration = Demonstration(settings, make_console(), groups, group_size, crash, atropos, tokens)
    asyncio.run(demonstration.run(keep))


@dataclass(frozen=True)
class Demonstration:
    settings: Settings
    console: Console
    groups: int
    group_size: int
    crash: bool
    atropos: bool
    tokens: bool

    async def run(self, keep: bool) -> None:
        interruption = Interruption()
        shown = False
        try:
            async with AsyncExitStack() as stack:
                starting = local_services(self.settings, Ports.free(), self.say, interruption.hurry)
                services = await interruption.ends(stack.enter_async_context(starting))
                await interruption.ends(services.during(self.roll_out(services)))
                shown = True
                if keep:
                    self.say("services stay up until Ctrl-C")
                    await interruption.ends(services.during(asyncio.Event().wait()))
        except Interrupted:
            # once the results are shown, Ctrl-C is the way to end --keep
            if not shown:
                raise
        if not keep:
            self.say(f"to keep the Temporal UI up: {rerun_command('demo --keep', self.settings)}")

    async def roll_out(self, services: Services) -> None:
        settings = self.settings
        journal = await open_journal(settings)
        run = await unused_name(journal)
        client = await connect(settings.temporal.model_copy(update={"address": services.temporal.address}))
        await until_served(client, services.worker)
        if self.atropos:
            batches = max(1, self.groups // GROUPS_PER_BATCH)
            chain = TrainingChain(services, settings, ENVIRONMENT, self.group_size, batches, self.say)
            await chain.run(run)
            return
        if not self.crash:
            await self.follow_run(services, client, journal, run, ENVIRONMENT, services.model_url)
            return
        turns = crashes.TURNS * self.groups * self.group_size
        async with crashes.crashing(services, settings, journal, run, turns, self.say) as crashing:
            await self.follow_run(services, client, journal, run, crashes.ENVIRONMENT, crashing.url)
            self.console.print(await crashing.damage(client, journal, self.groups))

    async def follow_run(
        self, services: Services, client: Client, journal: Journal, run: str, environment: str, url: str
    ) -> None:
        """Start the run with the model at `url`, show it to its end, and export it."""
        order = RunRequest(
            manifest=run_manifest(
                environment,
                run,
                services.model.model,
                group_size=self.group_size,
                rendering=Rendering() if self.tokens else None,
            ),
            endpoint=Endpoint(base_url=url, inference=Inference.TOKENS if self.tokens else Inference.CHAT),
            groups=self.groups,
            max_open_groups=self.groups,
        )
        handle = await start_campaign(client, journal, order)
        self.say(f"run {run}: {workflow_link(services.ui, client.namespace, campaign_id(run))}")
        await follow(self.console, client, handle, journal, run, self.group_size, self.groups)
        exported = self.settings.folder / "exports" / f"{run}.jsonl"
        lines = await export_run(journal, run, Format.GROUPS, exported)
        self.say(f"{amount(lines, 'group')} in {exported}")
        self.say(f"a transcript: {rerun_command(f'show {run}/g000000/r0', self.settings)}")

    def say(self, line: str) -> None:
        one_line(self.console, line)


async def unused_name(journal: Journal) -> str:
    """demo-1, demo-2, …: a name given twice would find its work done."""
    taken = await taken_names(journal)
    return next(name for number in count(1) if (name := f"demo-{number}") not in taken)
