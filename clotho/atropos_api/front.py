"""The ASGI application: atroposlib's own, mounted so that no answer leaves before the disk has what it says."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from atroposlib.api.server import app
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from clotho import failpoints
from clotho.atropos_api import upstream
from clotho.atropos_api.mirror import Mirror, Served
from clotho.atropos_api.queue_file import QueueFile
from clotho.atropos_api.sent import Refused, SentGroup, read_groups, unzipped

T = TypeVar("T")
RECORDED = {
    ("POST", "/register"),
    ("POST", "/register-env"),
    ("POST", "/disconnect-env"),
    ("GET", "/status-env"),
}
"""What changes registrations; /status-env widens group sizes."""
RETRY_SECONDS = 5


class DurableFront:
    """Requests that change something run one after another, each with its write to `file`."""

    def __init__(self, file: QueueFile) -> None:
        self._file = file
        self._mirror = Mirror()
        self._mirror.load(file.read())
        self._turn = asyncio.Lock()
        # SQLite blocks, and its connection has one user at a time.
        self._disk = ThreadPoolExecutor(1, "queue")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = (scope["method"], scope["path"]) if scope["type"] == "http" else None
        try:
            match route:
                case ("POST", "/scored_data" | "/scored_data_list"):
                    await self._accept(scope, receive, send)
                case ("GET", "/batch"):
                    await self._serve_batch(scope, receive, send)
                case ("GET", "/reset_data"):
                    await self._reset(scope, receive, send)
                case _ if route in RECORDED:
                    await self._record(scope, receive, send)
                case _:
                    await app(scope, receive, send)
        except Refused as refused:
            headers = {"retry-after": str(RETRY_SECONDS)} if refused.status == 503 else None
            answer = JSONResponse({"detail": refused.detail}, refused.status, headers)
            await answer(scope, receive, send)
        except ClientDisconnect:
            return

    async def _accept(self, scope: Scope, receive: Receive, send: Send) -> None:
        many = scope["path"] == "/scored_data_list"
        encoding = Headers(scope=scope).get("content-encoding", "")
        body = await asyncio.to_thread(unzipped, await Request(scope, receive).body(), encoding)
        groups = await asyncio.to_thread(read_groups, body, many=many)
        async with self._turn:
            upstream.admit(groups)
            fresh = _first_of_each_id(groups, await self._on_disk(self._file.known, _ids(groups)))
            if len(fresh) < len(groups):
                answer = await self._accept_some(scope, body, groups, fresh, many=many)
            else:
                answer = await _asked(scope, body)
                await self._keep(answer, groups)
        await failpoints.reach("queue.kept", ",".join(_ids(groups)))
        await answer.send(send)

    async def _accept_some(
        self, scope: Scope, body: bytes, groups: Sequence[SentGroup], fresh: Sequence[int], *, many: bool
    ) -> "_Answer":
        """As if all were new, but for those that are not: they are counted, and left out."""
        if not many:
            return _Answer.of({"status": "received", "duplicate": True})
        sent = json.loads(body)
        answer = await _asked(scope, json.dumps([sent[index] for index in fresh]).encode())
        await self._keep(answer, [groups[index] for index in fresh])
        if answer.status != 200:
            return answer
        counted = {"groups_processed": len(groups), "duplicates": len(groups) - len(fresh)}
        return _Answer.of(json.loads(answer.body) | counted)

    async def _keep(self, answer: "_Answer", groups: Sequence[SentGroup]) -> None:
        if answer.status == 200:
            self._mirror.name(groups)
            await self._commit(_ids(groups))

    async def _serve_batch(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        async with self._turn:
            self._mirror.drop_arrived()
            try:
                answer = await _asked(scope, await request.body())
            except Exception:
                if self._mirror.fetched().groups:
                    await self._reload()
                raise
            served = self._mirror.fetched()
            await self._commit()
        await failpoints.reach("batch.popped", served.names)
        if await request.is_disconnected():
            return await self._take_back(served)
        await answer.send(send)
        served.answered = True

    async def _take_back(self, served: Served) -> None:
        """Whoever asked for it is gone: the batch is for who asks next."""
        async with self._turn:
            self._mirror.take_back(served)
            await self._commit()

    async def _reset(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._turn:
            answer = await _asked(scope, await Request(scope, receive).body())
            self._mirror.drop_served()
            await self._commit(forget_accepted=True)
        await answer.send(send)

    async def _record(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._turn:
            answer = await _asked(scope, await Request(scope, receive).body())
            await self._commit()
        await answer.send(send)

    async def _commit(self, accepted: Sequence[str] = (), *, forget_accepted: bool = False) -> None:
        """Write what changed; raises Refused, with all as it was before, if the disk doesn't take it."""
        changes = self._mirror.changes(accepted, forget_accepted=forget_accepted)
        if changes is None:
            return
        try:
            await self._on_disk(self._file.write, changes)
        except sqlite3.Error as error:
            await self._reload()
            raise Refused(503, f"the queue can't be written: {error}") from error

    async def _reload(self) -> None:
        self._mirror.load(await self._on_disk(self._file.read))

    async def _on_disk(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)


class _Answer:
    """What the application answers, held back."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    @classmethod
    def of(cls, content: object) -> "_Answer":
        response = JSONResponse(content)
        start = {"type": "http.response.start", "status": 200, "headers": response.raw_headers}
        return cls([start, {"type": "http.response.body", "body": bytes(response.body)}])

    @property
    def status(self) -> int:
        return int(self._messages[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self._messages[1:])

    async def send(self, send: Send) -> None:
        for message in self._messages:
            await send(message)


async def _asked(scope: Scope, body: bytes) -> _Answer:
    """Ask atroposlib's application; its answer to a POST is not compressed, to be read here."""
    left_out = {b"content-encoding", b"content-length"}
    if scope["method"] == "POST":
        left_out.add(b"accept-encoding")
    headers = [pair for pair in scope["headers"] if pair[0].lower() not in left_out]
    headers.append((b"content-length", str(len(body)).encode()))
    messages: list[Message] = []
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return unread.pop() if unread else {"type": "http.disconnect"}

    async def keep(message: Message) -> None:
        messages.append(message)

    await app({**scope, "headers": headers}, receive, keep)
    return _Answer(messages)


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
