"""Connections of the API: to the services of a store, which are started where none run."""

import asyncio
import atexit
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from temporalio.client import Client

from clotho import application
from clotho.cli.options import open_journal
from clotho.cli.waiting import until_served
from clotho.config import Settings, TemporalSettings, development_services, load_settings
from clotho.embedded.services import Ports, await_ended
from clotho.errors import InvalidInput, Unavailable
from clotho.journal import Journal
from clotho.processes.child import ChildProcess
from clotho.temporal.connection import connect, is_named

Say = Callable[[str], None]
PERIOD = 0.1


@dataclass(frozen=True)
class Session:
    """A store, and the Temporal server whose workers serve it."""

    settings: Settings
    client: Client
    journal: Journal


class Sessions:
    """The sessions of this process, by the arguments that name them."""

    def __init__(self) -> None:
        self._open: dict[tuple[str | None, str | None], Session] = {}
        self._opening = asyncio.Lock()

    async def of(self, store: str | None, temporal: str | None, say: Say | None = None) -> Session:
        """Connect to the services of `store`; with `say`, start them until this process ends if none run.

        Raises InvalidInput where no server answers, and Unavailable for services that can't be started.
        """
        async with self._opening:
            settings = load_settings(store, temporal)
            known = self._open.get((store, temporal))
            if known is not None and known.settings == settings:
                return known
            if say is not None and not is_named(settings.temporal) and not await answers(settings.temporal):
                settings = await start_services(settings, say)
            client = await connect(settings.temporal)
            session = Session(settings, client, await open_journal(settings))
            self._open[store, temporal] = session
            return session


async def answers(temporal: TemporalSettings) -> bool:
    """Whether a server answers."""
    try:
        await connect(temporal)
    except InvalidInput:
        return False
    return True


async def start_services(settings: Settings, say: Say) -> Settings:
    """Run `clotho dev` for the store of `settings`, at free ports, until this process ends."""
    folder, ports = settings.folder, Ports.free()
    await asyncio.to_thread(await_ended, folder)
    options = {"--temporal-port": ports.temporal, "--ui-port": ports.ui, "--model-port": ports.model}
    words = [str(word) for option in options.items() for word in option]
    command = application.command("clotho.cli", "dev", "--store", settings.store, *words)
    say("starting services: Temporal, a small model, workers")
    # Unbuffered: what takes minutes, such as building the server, is told while it lasts.
    child = ChildProcess(("env", "PYTHONUNBUFFERED=1", *command), folder / "logs" / "dev.log")
    await child.start()
    atexit.register(stop_services, child, folder)
    said = 0
    while development_services(settings) is None:
        lines = child.output.splitlines()
        for line in lines[said:]:
            say(line)
        said = len(lines)
        if not child.running:
            raise Unavailable(f"services can't be started: {child.last_words} [{child.log}]")
        await asyncio.sleep(PERIOD)
    started = load_settings(settings.store)
    await until_served(await connect(started.temporal), child)
    return started


def stop_services(child: ChildProcess, folder: Path) -> None:
    """End services with this process. Workers finish the calls that they have in flight; Ctrl-C ends these, too."""
    child.terminate()
    try:
        await_ended(folder, told=True)
    except KeyboardInterrupt:
        child.terminate()
        await_ended(folder, told=True)


@cache
def sessions() -> Sessions:
    """The sessions of this process; to be used in the API's own event loop."""
    return Sessions()
