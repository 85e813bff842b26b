"""`clotho dev`: all services on this machine, in the foreground."""

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from clotho.cli.interruption import Interrupted, Interruption
from clotho.cli.options import Store
from clotho.cli.terminal import rerun_command
from clotho.cli.waiting import until_served
from clotho.config import Settings, load_settings
from clotho.embedded.services import MODEL_PORT, TEMPORAL_PORT, UI_PORT, Ports, Services, local_services
from clotho.temporal.connection import connect


def command(
    temporal_port: Annotated[int, typer.Option(help="Temporal's port.", min=1, max=65_535)] = TEMPORAL_PORT,
    ui_port: Annotated[int, typer.Option(help="The Temporal UI's port.", min=1, max=65_535)] = UI_PORT,
    model_port: Annotated[
        int, typer.Option(help="The embedded model's port.", min=1, max=65_535)
    ] = MODEL_PORT,
    store: Store = None,
) -> None:
    """Run a Temporal server, the embedded model and the workers until Ctrl-C.

    Workers finish the calls that they have in flight; a second Ctrl-C ends these too.
    """
    settings = load_settings(store)
    ports = Ports(temporal_port, ui_port, model_port)

    async def serve() -> None:
        interruption = Interruption()
        try:
            async with AsyncExitStack() as stack:
                services = await interruption.ends(
                    stack.enter_async_context(local_services(settings, ports, typer.echo, interruption.hurry))
                )
                await interruption.ends(services.during(attend(services, settings)))
        except Interrupted:
            typer.echo("stopped")

    asyncio.run(serve())


async def attend(services: Services, settings: Settings) -> None:
    """Say when and how work can be given; never returns."""
    client = await connect(settings.temporal.model_copy(update={"address": services.temporal.address}))
    await until_served(client, services.worker)
    order = f"run file_tasks --run my-first --model {services.model_url}"
    typer.echo(f"ready; in another terminal:\n  {rerun_command(order, settings)}\nCtrl-C stops everything")
    await asyncio.Event().wait()
