"""`clotho.run` and `clotho.arun`: a run from Python, started, watched and given back."""

import asyncio
import re
from collections.abc import AsyncIterator, Generator, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from rich.console import Console
from temporalio.client import Client

from clotho.api.background import background
from clotho.api.handle import Group, Run, group_of
from clotho.api.main_class import main_class_code
from clotho.api.session import Session, sessions
from clotho.cli.follow import ended_well, follow
from clotho.cli.operate import say_changed
from clotho.cli.run_file import options_of
from clotho.cli.run_options import DEFAULT_GROUPS
from clotho.cli.terminal import make_console, one_line
from clotho.config import Settings, development_services
from clotho.environment import Environment
from clotho.environment.code import Code
from clotho.errors import InvalidInput
from clotho.identifiers.ids import campaign_id
from clotho.runs.campaigns import CampaignHandle, campaign_handle, read_campaign_request
from clotho.runs.manifest import taken_names
from clotho.runs.request import RunRequest
from clotho.runs.scored import ScoredGroups
from clotho.runs.starting import messages_before_start, start
from clotho.runs.states import items_notice_at_start
from clotho.temporal.search_attributes import workflow_link

PERIOD = 0.5
"""Seconds between two looks for groups that have finished."""


@dataclass(frozen=True)
class Asked:
    """The arguments of `run` and `arun`."""

    environment: type[Environment] | str
    name: str | None
    model: str | None
    groups: int | None
    group_size: int
    max_open_groups: int
    items: Iterable[Mapping[str, Any]] | None
    store: str | None
    temporal: str | None
    progress: bool
    options: Mapping[str, Any]


def run(
    environment: type[Environment] | str,
    *,
    name: str | None = None,
    model: str | None = None,
    groups: int | None = None,
    group_size: int = 4,
    max_open_groups: int = 16,
    items: Iterable[Mapping[str, Any]] | None = None,
    store: str | None = None,
    temporal: str | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Roll out `groups` items of an environment, `group_size` times each, and return the run when it has ended.

    `environment`: a class, or a name as `clotho run` takes it. `name`: a run of that name is continued; without
    one it is the next free name after the environment. `model`: the base URL of an OpenAI-compatible server;
    without it the small model of the services on this machine. `items` replace the environment's own. `options`:
    those of `clotho run --help-all`, with underscores: temperature=0.7, budget={"cost": 20}, set={"difficulty": 2}.

    Where no services run for the store, they are started, and end with this process. Ctrl-C stops waiting: the run
    goes on, and the same call with its name waits again. Raises InvalidInput for what can't be run, RunFailed for a
    run that ended without a result.
    """
    asked = Asked(**locals())  # whose fields are these parameters
    return background().call(Progressing(asked).to_end())


def arun(
    environment: type[Environment] | str,
    *,
    name: str | None = None,
    model: str | None = None,
    groups: int | None = None,
    group_size: int = 4,
    max_open_groups: int = 16,
    items: Iterable[Mapping[str, Any]] | None = None,
    store: str | None = None,
    temporal: str | None = None,
    progress: bool = False,
    **options: Any,
) -> "Running":
    """`run`, from a coroutine: `await` it for the run, or iterate over its groups as they are scored."""
    return Running(Asked(**locals()))


class Running:
    """A run under way: `await` it, or iterate over its groups with `async for`. Whichever comes first starts it."""

    def __init__(self, asked: Asked) -> None:
        self._progressing = Progressing(asked)

    def __await__(self) -> Generator[Any, None, Run]:
        return background().acall(self._progressing.to_end()).__await__()

    async def __aiter__(self) -> AsyncIterator[Group]:
        """Groups as they are scored, those of an earlier start first. Raises RunFailed if the run fails."""
        while True:
            groups, ended = await background().acall(self._progressing.new_groups())
            for group in groups:
                yield group
            if ended:
                return


@dataclass(frozen=True)
class StartedRun:
    session: Session
    client: Client
    order: RunRequest
    handle: CampaignHandle
    scored: ScoredGroups


class Progressing:
    """One run, in the API's own event loop."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._console = make_console() if asked.progress else Console(quiet=True)
        self._started: StartedRun | None = None

    async def to_end(self) -> Run:
        started = await self._start()
        manifest = started.order.manifest
        await follow(
            self._console,
            started.client,
            started.handle,
            started.session.journal,
            manifest.run,
            manifest.group_size,
            started.order.groups,
        )
        return Run(manifest.run, started.session)

    async def new_groups(self) -> tuple[list[Group], bool]:
        """Groups scored since the last call, after PERIOD at the latest, and whether the run has ended."""
        first = self._started is None
        started = await self._start()
        run, asked = started.order.manifest.run, started.order.groups
        if first and (
            notice := await items_notice_at_start(started.session.journal, started.handle, run, asked)
        ):
            self._say(notice)
        result = asyncio.ensure_future(started.handle.result())
        try:
            await asyncio.wait([result], timeout=PERIOD)
            # asked before the groups are read: what was scored before the end is among the rest
            ended = result.done()
            found = await (started.scored.rest() if ended else started.scored.new())
            if ended:
                await ended_well(run, result)
        finally:
            # the waiting alone ends: the run goes on
            result.cancel()
        return [group_of(name, entry, started.session) for name, entry in found], ended

    async def _start(self) -> StartedRun:
        if self._started is not None:
            return self._started
        asked = self._asked
        environment, code = _environment(asked.environment)  # a class that can't be sent needs no services
        session, client = await sessions().serving(asked.store, asked.temporal, self._say)
        order = await _order(asked, environment, session)
        for notice in await messages_before_start(session.journal, order.manifest):
            self._say(notice)
        started = await start(client, session.journal, order, code)
        say_changed(self._console, started.changed, started.kept_by)
        run = order.manifest.run
        self._say(
            f"run {run}: {workflow_link(session.settings.temporal.ui, client.namespace, campaign_id(run))}"
        )
        scored = ScoredGroups(session.journal, client, run)
        self._started = StartedRun(session, client, started.order, started.handle, scored)
        return self._started

    def _say(self, line: str) -> None:
        one_line(self._console, line)


async def followed(settings: Settings, run: str, progress: bool) -> None:
    """Follow a run of the store to its end."""
    session, client = await sessions().serving(settings.store, settings.temporal.address, print)
    request = await read_campaign_request(session.journal, run)
    handle = campaign_handle(client, run)
    console = make_console() if progress else Console(quiet=True)
    await follow(console, client, handle, session.journal, run, request.group_size, request.groups)


def _environment(given: type[Environment] | str) -> tuple[str, Code | None]:
    """The environment's name, and its code where that is on no disk."""
    if isinstance(given, str):
        return given, None
    if given.__module__ == "__main__":
        return main_class_code(given)
    return f"{given.__module__}:{given.__qualname__}", None


async def _order(asked: Asked, environment: str, session: Session) -> RunRequest:
    name = asked.name or await _free_name(asked.environment, session)
    options = options_of(asked.options)
    model = asked.model
    if model is None and options.acts.has_model:
        services = await asyncio.to_thread(development_services, session.settings)
        if services is None:
            raise InvalidInput("give model=URL: the services here weren't started by clotho, and have none")
        model = services.model
    items = None if asked.items is None else tuple(map(dict, asked.items))
    manifest = await asyncio.to_thread(
        options.manifest, environment, name, asked.group_size, session.settings
    )
    return RunRequest(
        manifest=manifest,
        endpoint=options.endpoint(model),
        groups=asked.groups or options.number_chosen or (DEFAULT_GROUPS if items is None else len(items)),
        max_open_groups=asked.max_open_groups,
        items=items,
    )


async def _free_name(environment: type[Environment] | str, session: Session) -> str:
    """The first of fix-it-1, fix-it-2, … that no run has."""
    given = environment if isinstance(environment, str) else environment.__name__
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", given.rpartition(":")[2])
    begin, taken = "-".join(word.lower() for word in words) or "run", await taken_names(session.journal)
    return next(name for number in count(1) if (name := f"{begin}-{number}") not in taken)
