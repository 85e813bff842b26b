"""Connections of workers: each waits for a call's answer, and serves pages' requests to the sandbox meanwhile."""

import asyncio
import base64
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

WAIT_SECONDS = 60.0
NO_WORKER = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

Fields = dict[str, Any]


class Connection:
    """A connection to a worker. Messages are JSON, one on a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> Fields | None:
        """The next message; None where the worker is gone."""
        line = await self._reader.readline()
        # a line without an end was cut off when the worker died
        return json.loads(line) if line.endswith(b"\n") else None

    async def write(self, message: Fields) -> None:
        # A page's lone surrogates are no text that can be kept.
        self._writer.write(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
        await self._writer.drain()


@dataclass(frozen=True)
class SiteRequest:
    message: Fields
    answer: asyncio.Future[bytes]


class SandboxSites:
    """A session's requests to the sandbox. A worker that takes a call over is asked the open ones again.

    Each has a number, which is a part of its key in the sandbox: the sandbox answers a key once.
    """

    def __init__(self) -> None:
        self._worker: Connection | None = None
        self._open: dict[int, SiteRequest] = {}
        # a browser that starts again within a call must not reuse numbers, and so answers, of the one before
        self._number = time.time_ns()

    async def ask(self, host: str, request: bytes) -> bytes:
        """The sandbox's answer to a raw request; between calls, it waits for the next one."""
        self._number += 1
        number = self._number
        message = {"site": number, "host": host, "request": base64.b64encode(request).decode()}
        asked = SiteRequest(message, asyncio.get_running_loop().create_future())
        self._open[number] = asked
        try:
            # a worker that is gone isn't told: `serve` asks the next one all that is open
            if self._worker is not None:
                with suppress(ConnectionError):
                    await self._worker.write(message)
            async with asyncio.timeout(WAIT_SECONDS):
                return await asked.answer
        except TimeoutError:
            return NO_WORKER
        finally:
            del self._open[number]

    async def serve(self, worker: Connection) -> None:
        """Ask `worker` until it is gone."""
        self._worker = worker
        for asked in list(self._open.values()):
            await worker.write(asked.message)
        while (message := await worker.read()) is not None:
            if (one := self._open.get(message["site"])) is not None and not one.answer.done():
                one.answer.set_result(base64.b64decode(message["response"]))

    def leave(self, worker: Connection) -> None:
        """End a call, and give up its open requests, lest the next call makes them again."""
        # two attempts may wait for one call; the later one's worker is asked
        if self._worker is not worker:
            return
        self._worker = None
        for asked in self._open.values():
            if not asked.answer.done():
                asked.answer.set_result(NO_WORKER)

    def lose(self, worker: Connection) -> None:
        """The worker is gone before the call's end: another one may take it over."""
        if self._worker is worker:
            self._worker = None
