"""Connections of the API: to the services of a store, which are started where none run."""

import asyncio
import atexit
import ctypes
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from temporalio.client import Client

from clotho import application
from clotho.cli.options import existing_journal, open_journal
from clotho.cli.waiting import until_served
from clotho.config import Settings, TemporalSettings, development_services, load_settings
from clotho.embedded.services import Ports, await_ended, services_run
from clotho.errors import InvalidInput, Unavailable
from clotho.journal import Journal
from clotho.processes.child import ChildProcess
from clotho.temporal.connection import connect, is_named

Say = Callable[[str], None]
PERIOD = 0.1
ENDING_SECONDS = 8.0


@dataclass(frozen=True)
class Session:
    """A store, and the Temporal server whose workers serve it."""

    settings: Settings
    journal: Journal
    client: Client | None
    """None where no server answered: what is in the store can be read without one."""


class Sessions:
    """The sessions of this process."""

    def __init__(self) -> None:
        self._clients: dict[TemporalSettings, Client] = {}
        self._journals: dict[str, Journal] = {}
        self._starting = asyncio.Lock()

    async def reading(self, store: str | None, temporal: str | None) -> Session:
        """A session that reads the store. Raises InvalidInput for a store that isn't there."""
        settings = load_settings(store, temporal)
        try:
            client = await self._client(settings)
        except InvalidInput:
            client = None
        return Session(settings, await self._journal(settings, existing_journal), client)

    async def serving(self, store: str | None, temporal: str | None, say: Say) -> tuple[Session, Client]:
        """A session with workers: where no services run, they are started, until this process ends.

        Raises InvalidInput where the server that is named doesn't answer, Unavailable where none can be started.
        """
        # one at a time: two calls that find no services would start them twice
        async with self._starting:
            settings = load_settings(store, temporal)
            try:
                client = await self._client(settings)
            except InvalidInput:
                if is_named(settings.temporal):
                    raise
                client = None
            if client is None:
                settings = await start_services(settings, say)
                client = await self._client(settings)
            return Session(settings, await self._journal(settings, open_journal), client), client

    async def _client(self, settings: Settings) -> Client:
        if settings.temporal not in self._clients:
            client = self._clients[settings.temporal] = await connect(settings.temporal)
            # Never freed: as the interpreter ends it would drop the SDK's runtime, which waits for a native thread
            # that may wait for the interpreter. Clotho's own programs leave by `clotho/processes/ending.py`.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
        return self._clients[settings.temporal]

    async def _journal(self, settings: Settings, opened: Callable[[Settings], Awaitable[Journal]]) -> Journal:
        if settings.store not in self._journals:
            self._journals[settings.store] = await opened(settings)
        return self._journals[settings.store]


async def start_services(settings: Settings, say: Say) -> Settings:
    """Run `clotho dev` for the store of `settings`, at free ports, until this process ends."""
    folder, ports = settings.folder, Ports.free()
    # services that are ending hold the folder: new ones would be refused
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
    # read again: now with the addresses of the services
    started = load_settings(settings.store)
    await until_served(await connect(started.temporal), child)
    return started


def stop_services(child: ChildProcess, folder: Path) -> None:
    """End services with this process. Workers finish the calls that they have in flight; Ctrl-C ends these, too."""
    child.terminate()
    noted, began = False, time.monotonic()
    while services_run(folder):
        if not noted and time.monotonic() - began > ENDING_SECONDS:
            sys.stderr.write(
                "services are ending; workers finish the calls in flight (Ctrl-C: end them now)\n"
            )
            noted = True
        try:
            time.sleep(PERIOD)
        except KeyboardInterrupt:
            child.terminate()


@cache
def sessions() -> Sessions:
    """The sessions of this process; to be used in the API's own event loop."""
    return Sessions()
