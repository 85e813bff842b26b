"""The ASGI application with atroposlib's routes. It answers once the disk has what the answer says."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from atroposlib.api.server import app as stock
from fastapi import FastAPI
from pydantic import TypeAdapter
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from clotho import failpoints
from clotho.listeners.access import Access
from clotho.listeners.bodies import Bodies, BodyLimits
from clotho.listeners.connections import Client, connections
from clotho.listeners.guarded import guarded
from clotho.listeners.listening import Server
from clotho.listeners.refused import Refused
from clotho.plugins.atropos.api.queue import TRY_AGAIN, Batch, Queue
from clotho.plugins.atropos.api.sent import (
    ENVIRONMENT,
    ENVIRONMENT_NUMBER,
    GROUP,
    GROUPS,
    TRAINER,
    SentGroup,
    read,
)

T = TypeVar("T")
JSON = "application/json"
MOST_CONNECTIONS = 1_000
SECONDS_TO_FINISH = 10
"""Seconds that a shutdown leaves to open requests."""


@dataclass(eq=False)
class Delivery:
    """A batch on its way to a client."""

    batch: int
    connection: Client | None
    """None once it has ended."""
    arrived: bool = False
    """Whether the whole answer was handed to the network."""

    async def arrive(self) -> None:
        self.arrived = True


class AtroposApi:
    """Serves a queue. Its requests run one after another: SQLite has one writer.

    Memory holds only which batches are on their way; a new process serves all of these again.
    """

    def __init__(self, queue: Queue, access: Access, limits: BodyLimits) -> None:
        self._queue = queue
        self._bodies = Bodies(limits)
        self._reading = asyncio.Lock()
        """Held while a body is unpacked and what it holds is kept: one at a time has to fit into memory."""
        # two fetches at once would see the same deliveries: the second would take the first's batch for lost
        self._fetching = asyncio.Lock()
        self._deliveries: list[Delivery] = []
        # SQLite blocks, and its connection has one user at a time
        self._disk = ThreadPoolExecutor(1, "queue")
        pages = Middleware(
            CORSMiddleware,
            allow_origins=list(access.origins),
            allow_credentials=True,
            allow_methods=["*"],
            allow_headers=["*"],
        )
        app = FastAPI(
            middleware=[Middleware(GZipMiddleware, minimum_size=1000), pages],
            exception_handlers={Refused: _refused, sqlite3.Error: _unusable},
        )
        # the handlers take bare requests, from which FastAPI derives no schema of bodies
        app.openapi_schema = stock.openapi()
        routes: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
            ("GET", "/", self._greet),
            ("POST", "/register", partial(self._take, TRAINER, queue.register)),
            ("POST", "/register-env", partial(self._take, ENVIRONMENT, queue.register_environment)),
            ("POST", "/disconnect-env", partial(self._take, ENVIRONMENT_NUMBER, queue.disconnect)),
            ("GET", "/wandb_info", partial(self._tell, queue.wandb_info)),
            ("GET", "/info", partial(self._tell, queue.info)),
            ("GET", "/batch", self._batch),
            ("GET", "/latest_example", self._show_example),
            ("POST", "/scored_data", partial(self._take, GROUP, queue.accept)),
            ("POST", "/scored_data_list", partial(self._take, GROUPS, queue.accept_list)),
            ("GET", "/status", partial(self._tell, queue.status)),
            ("GET", "/status-env", partial(self._take, ENVIRONMENT_NUMBER, queue.environment_status)),
            ("GET", "/reset_data", self._reset),
        )
        for method, path, answer in routes:
            app.add_api_route(path, answer, methods=[method])
        self._app = guarded(app, access, self._bodies, _refusal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def client_left(self, connection: Client) -> None:
        """The client at this connection can't have received the whole of the last answer: serve its batch again."""
        self._deliveries = [each for each in self._deliveries if each.connection != connection]

    def connection_ended(self, connection: Client) -> None:
        """Serve again what the connection wasn't handed. Forget its address: another client may get it."""
        self._deliveries = [
            each for each in self._deliveries if each.arrived or each.connection != connection
        ]
        for delivery in self._deliveries:
            if delivery.connection == connection:
                delivery.connection = None

    async def _tell(self, work: Callable[[], object], _: Request) -> Response:
        return JSONResponse(await self._on_disk(work))

    async def _take(self, kind: TypeAdapter[T], work: Callable[[T], object], request: Request) -> Response:
        async with self._read(request, kind) as sent:
            answered = await self._on_disk(work, sent)
        groups = sent if isinstance(sent, list) else [sent]
        if ids := [each.group_id for each in groups if isinstance(each, SentGroup) and each.group_id]:
            await failpoints.reach("queue.kept", ",".join(ids))
        return JSONResponse(answered)

    @asynccontextmanager
    async def _read(self, request: Request, kind: TypeAdapter[T]) -> AsyncIterator[T]:
        encoding = request.headers.get("content-encoding", "")
        async with self._reading:
            # in threads: a body of 128 MiB takes seconds, and other requests are answered meanwhile
            body = await asyncio.to_thread(self._bodies.unpacked, await request.body(), encoding)
            yield await asyncio.to_thread(read, kind, body)

    async def _greet(self, _: Request) -> Response:
        return JSONResponse({"message": "AtroposLib API"})

    async def _show_example(self, _: Request) -> Response:
        return Response(await self._on_disk(self._queue.latest_example), media_type=JSON)

    async def _batch(self, request: Request) -> Response:
        async with self._fetching:
            arrived = {each.batch for each in self._deliveries if each.arrived}
            on_their_way = {each.batch for each in self._deliveries}
            served = await self._on_disk(self._queue.fetch, arrived, on_their_way)
            # after the fetch: one that fails deletes nothing, and the next must still name these as arrived
            self._deliveries = [each for each in self._deliveries if each.batch not in arrived]
            if not isinstance(served, Batch):
                return JSONResponse(served)
            delivery = Delivery(served.number, request.scope["client"])
            self._deliveries.append(delivery)
        await failpoints.reach("batch.popped", served.ids)
        await request.body()  # what comes after it tells whether the client is there
        if await request.is_disconnected():
            self.client_left(request.scope["client"])
            return Response(status_code=503)
        content = b'{"batch":' + served.content + b"}"
        return Response(content, media_type=JSON, background=BackgroundTask(delivery.arrive))

    async def _reset(self, _: Request) -> Response:
        # numbers of batches begin anew: a delivery that a fetch notes meanwhile would stand for a later batch
        async with self._fetching:
            await self._on_disk(self._queue.reset)
            self._deliveries = []
        return PlainTextResponse("Reset successful")

    async def _on_disk(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)


def _refusal(refused: Refused) -> Response:
    return JSONResponse({"detail": refused.detail}, refused.status, refused.headers)


async def _refused(_: Request, refused: Exception) -> Response:
    assert isinstance(refused, Refused)
    return _refusal(refused)


async def _unusable(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": f"the queue can't be used: {error}"}, 503, TRY_AGAIN)


def serve(
    bound: socket.socket, path: Path, access: Access, limits: BodyLimits, ready: Callable[[], None]
) -> None:
    """Serve the queue in `path`; `ready` is called once requests are answered. Raises InvalidInput for the file."""
    queue = Queue(path)
    api = AtroposApi(queue, access, limits)
    server = Server(
        api,
        ready,
        most_connections=MOST_CONNECTIONS,
        seconds_to_finish=SECONDS_TO_FINISH,
        connection=connections(api.client_left, api.connection_ended),
    )
    try:
        server.run(sockets=[bound])
    finally:
        queue.close()
