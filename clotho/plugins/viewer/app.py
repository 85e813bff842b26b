"""The viewer as an ASGI application: its pages, each at the path of the run, group or rollout that it shows."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from clotho.config import TemporalSettings
from clotho.errors import ClothoError, InvalidInput, Unavailable
from clotho.escaping import for_terminal
from clotho.identifiers.keys import prompt_key, scored_key, tools_key
from clotho.journal import Journal
from clotho.journal.store import Store
from clotho.listeners.access import PageAccess
from clotho.listeners.early_answers import EarlyAnswers
from clotho.listeners.listening import Server
from clotho.plugins.viewer.compare import (
    compared,
    compared_items,
    compared_runs,
    first_difference,
    turn_pairs,
)
from clotho.plugins.viewer.guard import Guard
from clotho.plugins.viewer.listing import Wanted, page_of
from clotho.plugins.viewer.operating import Operating
from clotho.plugins.viewer.overview import OPEN_SHOWN, Overview
from clotho.plugins.viewer.rendering import FOLDER, Pages
from clotho.plugins.viewer.rollout import TURNS, attempt_failures, open_rollouts, read_rollout
from clotho.plugins.viewer.rows import group_row
from clotho.plugins.viewer.run_index import RunIndexes
from clotho.plugins.viewer.search import raw_entry, search
from clotho.plugins.viewer.timeline import timeline
from clotho.plugins.viewer.tokens import TOKENS, TokenTexts, least_likely, tokens_of
from clotho.plugins.viewer.workflows import Workflows
from clotho.rollouts.branches import branches_of
from clotho.rollouts.group import GroupEntry, ToolManifest
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.transcript import read_transcript
from clotho.runs.manifest import list_runs, read_manifest
from clotho.runs.pauses import paused_in, paused_parts, pauses_of, read_pauses, reason_among, reason_for
from clotho.runs.repairs import group_repairs
from clotho.runs.targets import Target

SEARCH_PATIENCE_SECONDS = 20.0
"""That a search waits for the run's index: it would miss what isn't in there."""
MOST_CONNECTIONS = 800
"""Fewer than the descriptors that a process mostly has; half-sent requests hold theirs for 5 s."""
SECONDS_TO_FINISH = 2


@dataclass(frozen=True)
class Viewed:
    """The store and cluster that a viewer shows, and the folder of its indexes."""

    store: Store
    temporal: TemporalSettings
    cache: Path
    bundled: dict[str, Path]
    """Tokenizers that come with Clotho, by name."""
    access: PageAccess
    """Who may see it."""
    operating: bool = False
    """Whether its pages offer operations on runs."""


class Viewer:
    """The handlers of the pages."""

    def __init__(self, viewed: Viewed) -> None:
        self._store = viewed.store
        self._journal = Journal(viewed.store)
        self._indexes = RunIndexes(viewed.store, viewed.cache)
        self._workflows = Workflows(viewed.temporal)
        self._overview = Overview(self._journal, self._indexes, self._workflows)
        self._texts = TokenTexts(viewed.bundled)
        self._pages = Pages(
            store=viewed.store.identity,
            link=self._workflows.link,
            run_link=self._workflows.run_link,
            operating=viewed.operating,
        )
        self._access = viewed.access
        operating = Operating(self._journal, self._workflows, self._pages)
        self._operations = operating.routes() if viewed.operating else []

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self.runs),
                Route("/r/{run}", self.run),
                Route("/r/{run}/{group}", self.group),
                Route("/r/{run}/{group}/{rollout}", self.rollout),
                Route("/r/{run}/{group}/{rollout}/tokens", self.tokens),
                Route("/search/{run}", self.search),
                Route("/compare", self.compare),
                Route("/compare-runs", self.compare_runs),
                Route("/entry/{key:path}", self.entry),
                *self._operations,
                Mount("/static", StaticFiles(directory=FOLDER / "static")),
            ],
            middleware=[Middleware(Guard, access=self._access)],
            exception_handlers={ClothoError: self.refuse, HTTPException: self.refuse},
            lifespan=self._lifespan,
        )

    async def runs(self, _: Request) -> Response:
        return self._pages.answer("runs.html", runs=await self._overview.runs())

    async def run(self, request: Request) -> Response:
        target = Target.named(request.path_params["run"])
        facts = await self._overview.facts(target.run)
        rows, wanted = facts.index.in_order, Wanted.asked(request.query_params)
        return self._pages.answer(
            "run.html",
            facts=facts,
            sums=facts.sums,
            wanted=wanted,
            others=[name for name in await list_runs(self._journal) if name != target.run],
            listed=await asyncio.to_thread(page_of, rows, wanted),
            open_shown=OPEN_SHOWN,
            spending=await self._overview.spending(target.run),
            paused_parts=await paused_parts(self._journal, target.run),
            open_groups=await self._overview.open_groups(target.run) if facts.state != "scored" else [],
        )

    async def group(self, request: Request) -> Response:
        target = _target(request)
        group = str(target)
        scored = await self._journal.read(scored_key(group), GroupEntry)
        rollouts = await open_rollouts(self._journal, group)
        if scored is None and not rollouts:
            raise InvalidInput(f"there is no group {group!r} in {self._store.identity}")
        begun = await self._journal.read(prompt_key(rollouts[0].rollout), Prompt) if rollouts else None
        source = scored or begun
        before, after = await self._overview.groups_beside(group)
        paused = await paused_in(self._journal, target.run) if scored is None else {}
        return await self._answer(
            "group.html",
            before=before,
            after=after,
            prompt=begun,
            prompt_of=rollouts[0].rollout if rollouts else group,
            target=target,
            group=group,
            item=source.item if source is not None else {},
            row=group_row(group, scored) if scored is not None else None,
            siblings={each.rollout.rpartition("/")[2]: each for each in rollouts},
            paused=reason_among(paused, group),
            paused_rollouts=[
                each.rollout for each in rollouts if reason_among(paused, each.rollout) is not None
            ],
            state=await self._workflows.state(group) if scored is None else "scored",
            repairs=await group_repairs(self._journal, group),
            failures=await attempt_failures(self._journal, group),
            tools=await self._journal.read(tools_key(group), ToolManifest),
        )

    async def rollout(self, request: Request) -> Response:
        target = _target(request)
        view = await read_rollout(self._journal, str(target), _whole(request, "from"))
        pauses = pauses_of(await read_pauses(self._journal, target.run), view.rollout)
        before, after = await self._overview.neighbours(view.rollout)
        return await self._answer(
            "rollout.html",
            target=target,
            before=before,
            after=after,
            page_turns=TURNS,
            view=view,
            state=await self._workflows.state(view.rollout) if view.end is None else None,
            paused=await reason_for(self._journal, view.rollout) if view.end is None else None,
            timeline=timeline(view.turns, view.reward, pauses),
        )

    async def tokens(self, request: Request) -> Response:
        target = _target(request)
        rollout = str(target)
        view = await read_rollout(self._journal, rollout, most=0)
        transcript = await read_transcript(self._journal, rollout, view.count)
        branches = await asyncio.to_thread(branches_of, rollout, transcript, with_messages=False)
        if not branches:
            raise InvalidInput(f"the tokens of {rollout} aren't known: its model was asked in chat mode")
        branch = branches[min(_whole(request, "branch"), len(branches) - 1)]
        first = _whole(request, "from")
        manifest = await read_manifest(self._journal, target.run)
        tokenizer = manifest.rendering.tokenizer if manifest.rendering is not None else ""
        ids = branch.ids[first : first + TOKENS]
        texts = await asyncio.to_thread(self._texts.texts, tokenizer, ids)
        tokens = tokens_of(branch, first, texts)
        return self._pages.answer(
            "tokens.html",
            target=target,
            branches=branches,
            branch=branch,
            tokens=tokens,
            first=first,
            next=first + TOKENS if first + TOKENS < len(branch.ids) else None,
            least_likely=least_likely(tokens),
            tokenizer=tokenizer if texts is None else None,
        )

    async def compare(self, request: Request) -> Response:
        a, b = (Target.named(request.query_params.get(side, "")) for side in ("a", "b"))
        if a.rollout is None or b.rollout is None:
            raise InvalidInput("give two rollouts to compare: /compare?a=RUN/GROUP/r0&b=RUN/GROUP/r1")
        first = _whole(request, "from")
        left, right = [await read_rollout(self._journal, str(each), first) for each in (a, b)]
        return await self._answer(
            "compare.html",
            target=a,
            a=left,
            b=right,
            rows=compared(left, right),
            pairs=turn_pairs(left, right),
            differs=first_difference(left, right),
            same_prompt=left.prompt is not None
            and right.prompt is not None
            and left.prompt.messages == right.prompt.messages,
            next=max((each.next for each in (left, right) if each.next is not None), default=None),
        )

    async def compare_runs(self, request: Request) -> Response:
        names = [Target.named(request.query_params.get(side, "")).run for side in ("a", "b")]
        a, b = [await self._overview.facts(name) for name in names]
        return self._pages.answer(
            "compare_runs.html",
            a=a,
            b=b,
            rows=compared_runs(a.sums, b.sums),
            items=await asyncio.to_thread(compared_items, a.index.in_order, b.index.in_order),
        )

    async def search(self, request: Request) -> Response:
        target = Target.named(request.path_params["run"])
        await self._indexes.of(target.run).look(SEARCH_PATIENCE_SECONDS)
        facts = await self._overview.facts(target.run)
        text, first = request.query_params.get("text", "").strip(), _whole(request, "from")
        open_groups = await self._overview.open_groups(target.run) if facts.state != "scored" else []
        rollouts = [f"{row.group}/{each.name}" for row in facts.index.in_order for each in row.rollouts]
        rollouts += [each.rollout for group in open_groups for each in group.rollouts]
        findings = await search(self._store, rollouts, text, first) if text else None
        return self._pages.answer(
            "search.html", facts=facts, text=text, findings=findings, rollouts=len(rollouts)
        )

    async def entry(self, request: Request) -> Response:
        """An entry as it is in the store, as plain text."""
        key = request.path_params["key"]
        if (text := await raw_entry(self._store, key)) is None:
            raise InvalidInput(f"there is no entry {key} in {self._store.identity}")
        return PlainTextResponse(for_terminal(text))

    async def _answer(self, template: str, **values: Any) -> Response:
        """A page with texts of models, which take time: the viewer answers others meanwhile."""
        return await asyncio.to_thread(self._pages.answer, template, **values)

    async def refuse(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return self._pages.answer("error.html", error.status_code, message=error.detail)
        unavailable = isinstance(error, Unavailable)
        status = 503 if unavailable else 404 if isinstance(error, InvalidInput) else 500
        return self._pages.answer("error.html", status, message=str(error))

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        await self._indexes.stop()


def _target(request: Request) -> Target:
    """The group or rollout that a path names. Raises InvalidInput."""
    names = [request.path_params[part] for part in ("run", "group", "rollout") if part in request.path_params]
    return Target.named("/".join(names))


def _whole(request: Request, name: str) -> int:
    """A whole number of the query; 0 where it is none."""
    text = request.query_params.get(name, "")
    # int() refuses more than 4,300 digits, and an address may have them
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0


def serve(bound: socket.socket, viewed: Viewed, ready: Callable[[], None]) -> None:
    """Serve `viewed`; `ready` is called once requests are answered."""
    server = Server(
        lambda: EarlyAnswers(Viewer(viewed).application()),
        ready,
        most_connections=MOST_CONNECTIONS,
        seconds_to_finish=SECONDS_TO_FINISH,
        factory=True,
        lifespan="on",
    )
    server.run(sockets=[bound])
