"""The workers that wait for calls' answers, and that serve requests of pages to the sandbox meanwhile."""

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
    """A worker. Messages are JSON, one on a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> Fields | None:
        """The next message; None where the worker is gone."""
        line = await self._reader.readline()
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
    """Requests of a session to the sandbox: numbered, and asked again of the worker that takes a call over.

    The number is a part of the request's key in the sandbox, where the same request is made once. Those of a
    browser that was started again within a call follow those of the one before.
    """

    def __init__(self) -> None:
        self._worker: Connection | None = None
        self._open: dict[int, SiteRequest] = {}
        self._number = time.time_ns()

    async def ask(self, host: str, request: bytes) -> bytes:
        """The sandbox's answer to a raw request; between calls, it waits for the next one."""
        self._number += 1
        number = self._number
        message = {"site": number, "host": host, "request": base64.b64encode(request).decode()}
        asked = SiteRequest(message, asyncio.get_running_loop().create_future())
        self._open[number] = asked
        try:
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
        """End a call: what it was asked and hasn't answered is given up, lest the next one makes it again."""
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
