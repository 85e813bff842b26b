"""`clotho try`: one rollout of an environment, printed as it runs, and not kept."""

import asyncio
import json
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from temporalio.client import Client, WorkflowFailureError

from clotho.cli import run_options as option
from clotho.cli.follow import failure_text
from clotho.cli.interruption import Interruption
from clotho.cli.show import StepPrinter, heading, show_disturbances, show_end
from clotho.cli.terminal import make_console, one_line, sanitized_text
from clotho.cli.waiting import stall_reason, until_served
from clotho.config import Settings, load_settings
from clotho.embedded.services import EphemeralServices, ephemeral_services
from clotho.environment.instances import EnvironmentProcesses, EnvironmentsHere
from clotho.errors import ClothoError, EnvironmentFailed, InvalidInput, IsolationUnavailable
from clotho.escaping import truncate_middle
from clotho.identifiers.ids import group_id, rollout_id
from clotho.models.listed_models import only_model
from clotho.rollouts.group import RepairBounds
from clotho.rollouts.item import Item
from clotho.rollouts.run import RunManifest
from clotho.runs.campaigns import CampaignHandle, start_campaign
from clotho.runs.request import RunRequest
from clotho.temporal.failures import failure_of
from clotho.temporal.states import describe

RUN = "try"
NO_REPAIRS = RepairBounds(per_group=0, per_run=0)
PERIOD = 0.1
TROUBLE_PERIOD = 3.0
TROUBLE_SHOWN = 500

Model = Annotated[
    str | None,
    typer.Option(
        help="Base URL of an OpenAI-compatible server, such as http://host:8000/v1.",
        metavar="URL",
        rich_help_panel=option.MODEL,
        show_default="a small model on this machine",
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Call the environment's code on this terminal, without bounds: breakpoint() stops there.",
    ),
]
ItemNumber = Annotated[int, typer.Option("--item", help="Which item, counted from 0.", min=0, metavar="N")]


@option.with_run_options
def command(
    environment: option.Environment,
    item: ItemNumber = 0,
    items: option.Items = None,
    model: Model = None,
    debug: Debug = False,
    *,
    asked: option.RunOptions,
) -> None:
    """Roll out ENV once and print everything: prompt, turns, tool results and reward.

    Temporal, workers and a store are started for it, and removed afterwards; the sandbox is a real one. The exit
    status is 1 if the rollout fails. An exception of the environment is shown with its traceback.
    """
    settings = load_settings()
    console = make_console()
    if asked.api_key_env and model is None:
        raise InvalidInput("--api-key-env needs --model: the model on this machine has no key")
    manifest = asked.manifest(environment, RUN, 1, settings)
    given = asked.given_items(items)

    async def roll_out() -> None:
        interruption = Interruption()
        chosen = await interruption.ends(chosen_item(manifest, item, given, debug))
        heading(console, f"item {item}")
        console.print(sanitized_text(json.dumps(chosen, indent=2, ensure_ascii=False)))
        await interruption.ends(in_services(settings, console, manifest, asked, model, chosen, debug))

    try:
        asyncio.run(roll_out())
    except EnvironmentFailed as error:
        one_line(console, str(error), "red")
        raise RolloutFailed("the environment raised what is shown above") from None


class RolloutFailed(ClothoError):
    """A rollout without a reward; the message says why."""


async def chosen_item(
    manifest: RunManifest, number: int, given: tuple[Item, ...] | None, debug: bool
) -> Item:
    """Item `number` of the file or else of the environment; raises InvalidInput if there are fewer."""
    if given is None:
        given = await first_items(manifest, number + 1, debug)
    if number >= len(given):
        raise InvalidInput(f"--item {number}: there are {len(given)} items, counted from 0")
    return given[number]


async def first_items(manifest: RunManifest, number: int, debug: bool = False) -> tuple[Item, ...]:
    """The first `number` items of the environment, fewer where it has fewer."""
    made = EnvironmentsHere() if debug else EnvironmentProcesses()
    async with made as environments, environments.enumeration(manifest) as environment:
        return await environment.next_items(number)


async def in_services(
    settings: Settings,
    console: Console,
    manifest: RunManifest,
    asked: option.RunOptions,
    model: str | None,
    item: Item,
    debug: bool,
) -> None:
    with_model = model is None and asked.acts.has_model
    async with ephemeral_services(settings, with_model=with_model, debug=debug) as services:
        endpoint = asked.endpoint(model or services.model_url)
        named = manifest
        if endpoint is not None and not manifest.model:
            named = manifest.named(await only_model(endpoint))
        order = RunRequest(
            manifest=named,
            endpoint=endpoint,
            groups=1,
            max_open_groups=1,
            items=(item,),
            repairs=NO_REPAIRS,
        )
        await services.during(Trial(services, console).roll_out(order))


async def say_troubles(console: Console, client: Client, run: str) -> None:
    """Print what is tried again, once for each reason; never returns."""
    said: set[str] = set()
    while True:
        await asyncio.sleep(TROUBLE_PERIOD)
        trouble = await stall_reason(client, run)
        # said once, not for each attempt
        reason = trouble.partition(", attempt ")[0] if trouble else None
        if trouble and reason and reason not in said:
            said.add(reason)
            one_line(console, truncate_middle(trouble, TROUBLE_SHOWN), "yellow")


@dataclass(frozen=True)
class Trial:
    """One rollout in services that are up."""

    services: EphemeralServices
    console: Console
    rollout: str = rollout_id(group_id(RUN, 0), 0)

    async def roll_out(self, order: RunRequest) -> None:
        """Print it to its end; raises RolloutFailed if it has no reward, IsolationUnavailable if no sandbox."""
        client, journal = self.services.client, self.services.journal
        await until_served(client, self.services.worker)
        handle = await start_campaign(client, journal, order)
        failed = await self._follow(handle)
        if failed is not None:
            raise await self._failure(client, failed)
        await show_end(self.console, journal, self.rollout)
        await show_disturbances(self.console, journal, self.rollout)

    async def _follow(self, handle: CampaignHandle) -> WorkflowFailureError | None:
        printer = StepPrinter(self.console, self.services.journal, self.rollout)
        result = asyncio.ensure_future(handle.result())
        troubles = asyncio.create_task(say_troubles(self.console, self.services.client, RUN))
        try:
            while not result.done():
                await printer.print_new()
                await asyncio.wait([result, troubles], timeout=PERIOD)
            # once more: the last entries may have been written after the look before
            await printer.print_new()
            await result
        except WorkflowFailureError as error:
            return error
        finally:
            result.cancel()
            troubles.cancel()
        return None

    async def _failure(self, client: Client, failed: WorkflowFailureError) -> ClothoError:
        """The failure, with the traceback printed if the environment raised."""
        # the rollout first: the group repeats its failure, and has one of its own where no rollout began
        for workflow in (self.rollout, group_id(RUN, 0)):
            described = await describe(client, workflow)
            if described is None or (failure := await failure_of(client, described)) is None:
                continue
            if failure.kind == EnvironmentFailed.__name__:
                one_line(self.console, failure.message, "red")
                return RolloutFailed("the environment raised what is shown above")
            if failure.kind == IsolationUnavailable.__name__:
                return IsolationUnavailable(failure.message)
            return RolloutFailed(f"the rollout failed: {failure.kind}: {failure.message}")
        one_line(self.console, self.services.worker.last_words)
        return RolloutFailed(failure_text(RUN, failed))
