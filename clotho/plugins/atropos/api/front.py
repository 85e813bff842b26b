"""The ASGI application: atroposlib's own, whose answers leave once the disk has what they say."""

import asyncio
import json
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from clotho import failpoints
from clotho.listeners.access import Access
from clotho.listeners.bodies import Bodies, BodyLimits
from clotho.listeners.connections import Client, connections
from clotho.listeners.early_answers import EarlyAnswers
from clotho.listeners.listening import Server
from clotho.listeners.refused import Refused
from clotho.plugins.atropos.api import upstream
from clotho.plugins.atropos.api.answers import Answer, asked, without
from clotho.plugins.atropos.api.mirror import FetchedBatch, Mirror
from clotho.plugins.atropos.api.queue_file import QueueFile
from clotho.plugins.atropos.api.sent import EnvironmentNumber, SentGroup, read_groups, read_request

T = TypeVar("T")
CHANGING = {
    *(("POST", path) for path in ("/register", "/register-env", "/disconnect-env")),
    *(("POST", path) for path in ("/scored_data", "/scored_data_list")),
    *(("GET", path) for path in ("/status-env", "/batch", "/reset_data")),
}
"""Requests that are answered once the disk has what they changed; /status-env widens group sizes."""
MOST_CONNECTIONS = 1_000
SECONDS_TO_FINISH = 10
"""Seconds that a shutdown leaves to open requests."""


class DurableFront:
    """Requests that change something run one after another, each with its write to `file`."""

    def __init__(self, file: QueueFile, access: Access, limits: BodyLimits) -> None:
        self._file = file
        self._access = access
        self._bodies = Bodies(limits)
        self._mirror = Mirror()
        self._mirror.load(file.read())
        self._turn = asyncio.Lock()
        self._unpacking = asyncio.Lock()
        """Held while a body of groups is unpacked: one at a time has to fit into memory."""
        self._astray = False
        """True while memory may differ from the file."""
        self._answering: dict[Client, FetchedBatch] = {}
        """The last batch that each connection was sent."""
        self._taking_back: set[asyncio.Task[None]] = set()
        # SQLite blocks, and its connection has one user at a time.
        self._disk = ThreadPoolExecutor(1, "queue")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._access.check(headers)
            if not self._access.allows_page(headers):
                # Without an origin the application leaves out its CORS headers, which let every page ask.
                scope = without(scope, b"origin")
            if (scope["method"], scope["path"]) not in CHANGING:
                answer = await asked(scope, b"")
                await answer.send(send)
                return
            async with self._bodies.body(headers, receive) as body:
                await self._change(scope, body, receive, send)
        except Refused as refused:
            await JSONResponse({"detail": refused.detail}, refused.status, refused.headers)(
                scope, receive, send
            )
        except sqlite3.Error as error:
            detail = f"the queue can't be used: {error}"
            await JSONResponse({"detail": detail}, 503, upstream.TRY_AGAIN)(scope, receive, send)
        except ClientDisconnect:
            return

    async def _change(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/scored_data" | "/scored_data_list":
                answer = await self._accept(scope, body)
            case "/batch":
                return await self._serve_batch(scope, receive, send)
            case "/reset_data":
                answer = await self._reset(scope)
            case _:
                answer = await self._register(scope, body)
        await answer.send(send)

    async def _accept(self, scope: Scope, sent: bytes) -> Answer:
        many = scope["path"] == "/scored_data_list"
        encoding = Headers(scope=scope).get("content-encoding", "")
        async with self._unpacking:
            body = await asyncio.to_thread(self._bodies.unpacked, sent, encoding)
            groups = await asyncio.to_thread(read_groups, body, many=many)
            async with self._exclusive():
                upstream.admit(groups)
                fresh = _first_of_each_id(groups, await self._on_disk(self._file.known, _ids(groups)))
                if len(fresh) < len(groups):
                    answer = await self._accept_some(scope, body, groups, fresh, many=many)
                else:
                    answer = await asked(scope, body)
                    await self._keep(answer, groups)
        await failpoints.reach("queue.kept", ",".join(_ids(groups)))
        return answer

    async def _accept_some(
        self, scope: Scope, body: bytes, groups: Sequence[SentGroup], fresh: Sequence[int], *, many: bool
    ) -> Answer:
        """Accept the new groups; those that are known are counted, and left out."""
        if not many:
            return Answer.of({"status": "received", "duplicate": True})
        sent = json.loads(body)
        answer = await asked(scope, json.dumps([sent[index] for index in fresh]).encode())
        await self._keep(answer, [groups[index] for index in fresh])
        if answer.status != 200:
            return answer
        counted = {"groups_processed": len(groups), "duplicates": len(groups) - len(fresh)}
        return Answer.of(json.loads(answer.body) | counted)

    async def _keep(self, answer: Answer, groups: Sequence[SentGroup]) -> None:
        if answer.status == 200:
            self._mirror.name(groups)
            await self._commit(_ids(groups))

    async def _serve_batch(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._exclusive():
            self._mirror.drop_arrived()
            upstream.watch_batches()
            answer = await asked(scope, b"")
            served = self._mirror.fetched()
            await self._commit()
        await failpoints.reach("batch.popped", served.names)
        connection = scope["client"]
        self._answering[connection] = served
        if await Request(scope, receive).is_disconnected():
            return await self._requeue(served)
        await answer.send(send)
        served.answered = not served.torn

    def client_left(self, connection: Client) -> None:
        """The client at this connection can't have received the whole of the last answer."""
        if (served := self._answering.pop(connection, None)) is not None:
            served.torn, served.answered = True, False
            task = asyncio.ensure_future(self._requeue(served))
            self._taking_back.add(task)
            task.add_done_callback(self._taking_back.discard)

    def connection_ended(self, connection: Client) -> None:
        self._answering.pop(connection, None)

    async def _requeue(self, served: FetchedBatch) -> None:
        """Serve the batch again to the next client: this one is gone."""
        async with self._exclusive():
            self._mirror.requeue(served)
            await self._commit()

    async def _reset(self, scope: Scope) -> Answer:
        async with self._exclusive():
            answer = await asked(scope, b"")
            upstream.forget_start()
            self._mirror.drop_served()
            await self._commit(forget_accepted=True)
        return answer

    async def _register(self, scope: Scope, sent: bytes) -> Answer:
        encoding = Headers(scope=scope).get("content-encoding", "")
        body = await asyncio.to_thread(self._bodies.unpacked, sent, encoding)
        request = read_request(scope["path"], body)
        async with self._exclusive():
            upstream.admit_request(request)
            if scope["path"] == "/status-env" and isinstance(request, EnvironmentNumber):
                upstream.check_environment(request.env_id)
            answer = await asked(scope, body)
            await self._commit()
        return answer

    async def _commit(self, accepted: Sequence[str] = (), *, forget_accepted: bool = False) -> None:
        """Write what changed. Raises sqlite3.Error if the disk doesn't take it: see `_exclusive`."""
        changes = self._mirror.changes(accepted, forget_accepted=forget_accepted)
        if changes is None:
            return
        await self._on_disk(self._file.write, changes)

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Run one request at a time, on memory that equals the file; a failed request restores that."""
        async with self._turn:
            if self._astray:
                await self._reload()
            try:
                yield
            except Refused:
                raise
            except BaseException:
                self._astray = True
                # A disk that can't be read now is read by the next request.
                with suppress(sqlite3.Error):
                    await self._reload()
                raise

    async def _reload(self) -> None:
        self._mirror.load(await self._on_disk(self._file.read))
        self._astray = False

    async def _on_disk(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)


def _ids(groups: Sequence[SentGroup]) -> list[str]:
    return [group.group_id for group in groups if group.group_id is not None]


def _first_of_each_id(groups: Sequence[SentGroup], known: set[str]) -> list[int]:
    """The indices of the groups that are new."""
    seen = set(known)
    fresh = []
    for index, group in enumerate(groups):
        if group.group_id is None or group.group_id not in seen:
            fresh.append(index)
        if group.group_id is not None:
            seen.add(group.group_id)
    return fresh


def serve(
    bound: socket.socket, path: Path, access: Access, limits: BodyLimits, ready: Callable[[], None]
) -> None:
    """Serve the queue in `path`; `ready` is called once requests are answered. Raises InvalidInput for the file."""
    file = QueueFile(path)
    front = DurableFront(file, access, limits)
    server = Server(
        EarlyAnswers(front),
        ready,
        most_connections=MOST_CONNECTIONS,
        seconds_to_finish=SECONDS_TO_FINISH,
        connection=connections(front.client_left, front.connection_ended),
    )
    try:
        server.run(sockets=[bound])
    finally:
        file.close()
