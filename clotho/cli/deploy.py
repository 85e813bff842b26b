"""`clotho deploy`: have new work begin with one version of the workers."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from clotho.cli.interruption import Interruption
from clotho.cli.options import Address
from clotho.cli.terminal import make_console, one_line
from clotho.config import Settings, load_settings
from clotho.errors import InvalidInput
from clotho.rollouts.task_queues import TaskQueues
from clotho.temporal.connection import connect
from clotho.temporal.deployments import make_current


def command(
    build_id: Annotated[
        str | None,
        typer.Argument(
            help="The version, as its workers have it in worker.build_id.",
            show_default="worker.build_id",
        ),
    ] = None,
    temporal: Address = None,
) -> None:
    """Make a version of the workers current: new runs, groups and rollouts begin with it.

    What began with another version ends with it. Waits up to 20 s for a worker of the version, and refuses it
    where none asks for work.
    """
    settings = load_settings(None, temporal)
    chosen = build_id or settings.worker.build_id
    if chosen is None:
        raise InvalidInput(
            "which version? give its build id, or set worker.build_id (CLOTHO_WORKER__BUILD_ID)"
        )

    async def interruptible() -> None:
        await Interruption().ends(deploy(settings, make_console(), chosen))

    asyncio.run(interruptible())


async def deploy(settings: Settings, console: Console, build_id: str) -> None:
    name = settings.worker.deployment
    client = await connect(settings.temporal)
    before = await make_current(client, TaskQueues().workflows, name, build_id)
    if before == build_id:
        one_line(console, f"deployment {name}: build {build_id} is current already")
    elif before is None:
        one_line(console, f"deployment {name}: build {build_id} is current; none was before")
    else:
        one_line(console, f"deployment {name}: build {build_id} is current; before it was {before}")
        keep = f"keep the workers of {before} until `clotho doctor` says that it is drained"
        one_line(console, f"what began with {before} ends with it: {keep}")
