"""`clotho dev`: all services on this machine, in the foreground."""

import asyncio
import signal
from typing import Annotated

import typer

from clotho.cli.options import Store
from clotho.config import load_settings
from clotho.embedded.services import MODEL_PORT, TEMPORAL_PORT, UI_PORT, Ports, local_services
from clotho.errors import InvalidInput


def command(
    temporal_port: Annotated[int, typer.Option(help="Temporal's port.")] = TEMPORAL_PORT,
    ui_port: Annotated[int, typer.Option(help="The Temporal UI's port.")] = UI_PORT,
    model_port: Annotated[int, typer.Option(help="The embedded model's port.")] = MODEL_PORT,
    store: Store = None,
) -> None:
    """Run a Temporal server, the embedded model and the workers until Ctrl-C."""
    settings = load_settings(store=store)
    ports = Ports(temporal_port, ui_port, model_port)

    async def serve() -> None:
        stopped = interrupted()
        async with local_services(settings, ports, typer.echo) as services:
            typer.echo("ready; in another terminal:")
            typer.echo(f"  clotho run file_tasks --run my-first --model {services.model_url}")
            typer.echo("Ctrl-C stops everything")
            ended = asyncio.create_task(services.ended())
            await asyncio.wait(
                [ended, asyncio.create_task(stopped.wait())], return_when=asyncio.FIRST_COMPLETED
            )
            if ended.done():
                raise InvalidInput(f"{ended.result()} ended by itself; see {services.logs}")

    asyncio.run(serve())


def interrupted() -> asyncio.Event:
    """Set by Ctrl-C or SIGTERM; the next one has its usual effect, for who will not wait for a drain."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        stopped.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    return stopped
