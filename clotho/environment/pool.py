"""The warm processes of one environment, configuration and code."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from clotho.environment.processes import AuthorCode, AuthorProcess, current_caller
from clotho.errors import HostUnavailable
from clotho.processes.roles import processors, workers_by_default

IDLE_SECONDS = 120.0
"""Seconds after which a process without work is ended, where others of its pool are left."""
LAST_IDLE_SECONDS = 1_200.0
"""Seconds after which the last one is."""
CLOSED = "the environment's processes have ended"


def default_processes() -> int:
    """Four a processor, since verifiers wait for their commands most of the time; each takes some 60 MB.

    They are divided between the workers that a host has by default.
    """
    return 4 * processors() // workers_by_default()


@dataclass(frozen=True)
class ProcessBounds:
    """Bounds of the processes for authors' code that one worker keeps."""

    processes: int = field(default_factory=default_processes)
    """Processes of one environment."""
    memory_bytes: int = 8 << 30
    """Resident memory of one process, and of those that it starts."""


class Pool:
    """Processes of one environment, each lent to one caller at a time.

    Where none is free, the pool starts another, one at a time: until it is up, processes that short calls give
    back serve those who wait.
    """

    def __init__(self, code: AuthorCode, bounds: ProcessBounds) -> None:
        self._code = code
        self._memory_bytes = bounds.memory_bytes
        self._most = bounds.processes
        self._idle: list[AuthorProcess] = []
        self._all: set[AuthorProcess] = set()
        self._waiting: deque[asyncio.Future[AuthorProcess]] = deque()
        self._starting: asyncio.Task[None] | None = None
        self._replacing = 0
        """Processes that were ended, and whose places are taken by others that start."""
        self._closed = False

    @property
    def busy(self) -> bool:
        starting = self._starting is not None or self._replacing > 0
        return len(self._idle) < len(self._all) or starting or bool(self._waiting)

    @asynccontextmanager
    async def lent(self, undrawn: bool = False) -> AsyncIterator[AuthorProcess]:
        """Lend a process for the time of the body; `undrawn`: one whose dataset nobody has taken items from.

        A process that asks for something during a call gets itself: if it were the only one, it would wait for
        its own end. Raises what starting one raises.
        """
        caller = current_caller.get()
        if caller is not None and caller.process in self._all:
            yield caller.process
            return
        process = await self._take()
        try:
            if undrawn and process.drawn:
                process = await self._replace(process)
            process.drawn = process.drawn or undrawn
            yield process
        finally:
            self._give_back(process)

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        ending = list(self._all)
        for process in ending:
            self._end(process, "its worker stops")
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(HostUnavailable(CLOSED))
        await asyncio.gather(*(process.ended() for process in ending))

    async def _take(self) -> AuthorProcess:
        if self._closed:
            raise HostUnavailable(CLOSED)
        while self._idle:
            process = self._idle.pop()
            if process.alive:
                return process
            self._all.discard(process)
        waiting: asyncio.Future[AuthorProcess] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._start_another()
        try:
            return await waiting
        except asyncio.CancelledError:
            # A process that was lent in the moment of the cancel: nobody else would give it back.
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._give_back(waiting.result())
            raise
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _start_another(self) -> None:
        if self._starting is None and self._waiting and self._has_room:
            self._starting = asyncio.create_task(self._start_for_those_who_wait())

    @property
    def _has_room(self) -> bool:
        return len(self._all) + self._replacing < self._most and not self._closed

    async def _replace(self, process: AuthorProcess) -> AuthorProcess:
        """End a process and start another, whose place nobody takes meanwhile."""
        self._replacing += 1
        try:
            self._end(process, "its dataset was begun")
            return await self._start()
        finally:
            self._replacing -= 1

    async def _start_for_those_who_wait(self) -> None:
        """Start a process, even if its caller is cancelled meanwhile: the next attempt finds what it has set up."""
        try:
            process = await self._start()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._starting = None
            # all of them fail: each would else start a process that fails, one after the other
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(error)
            self._waiting.clear()
            return
        self._starting = None
        self._give_back(process)
        self._start_another()

    async def _start(self) -> AuthorProcess:
        process = await AuthorProcess.start(self._code, self._memory_bytes)
        self._all.add(process)
        # known once the first process is up, before which no second one starts
        if (most := process.facts["max_processes"]) is not None:
            self._most = min(self._most, max(1, most))
        return process

    def _give_back(self, process: AuthorProcess) -> None:
        if self._closed or process.worn:
            self._end(process, "it is worn")
            self._start_another()
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(process)
                return
        self._idle.append(process)
        self._watch_idle(process)

    def _watch_idle(self, process: AuthorProcess) -> None:
        uses, last = process.uses, len(self._all) == 1

        def look() -> None:
            # lent since: giving it back has set another timer
            if process not in self._idle or process.uses != uses:
                return
            # it has become the last one, which is kept for longer
            if len(self._all) == 1 and not last:
                self._watch_idle(process)
                return
            self._idle.remove(process)
            self._end(process, "it was idle")

        asyncio.get_running_loop().call_later(LAST_IDLE_SECONDS if last else IDLE_SECONDS, look)

    def _end(self, process: AuthorProcess, reason: str) -> None:
        self._all.discard(process)
        process.kill(reason)
