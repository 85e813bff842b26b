"""The near side of a stream to a sandbox host: calls under way, and their answers."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from clotho.errors import ClothoError, SandboxUnavailable
from clotho.plugins.ssh.remote.calls import RemoteAnswer, RemoteCall
from clotho.plugins.ssh.remote.link import MAX_CALLS, Link, Reader, Writer
from clotho.plugins.ssh.remote.messages import pack, unpack

GREETING_SECONDS = 30.0
"""Seconds within which a server that was started answers."""
END_SECONDS = 15.0
"""Seconds that the end of a stream is waited for."""

log = logging.getLogger("clotho")


@dataclass(frozen=True)
class Stream:
    """A running server's input and output, and why it ended."""

    reader: Reader
    writer: Writer
    why_ended: Callable[[], Awaitable[ClothoError]]
    """Says why a server ended that should still run."""
    close: Callable[[], Awaitable[None]]
    """Waits for the end of a server whose input was closed; may be called again."""


@dataclass(frozen=True)
class _Pending:
    answer: asyncio.Future[bytes | str]
    """A message, or why there won't be one."""
    to: Path | None


class Connection:
    """Belongs to the event loop that opened it."""

    def __init__(self, stream: Stream) -> None:
        self._link = Link(stream.reader, stream.writer, self._file_of, self._is_pending)
        self._stream = stream
        self._pending: dict[int, _Pending] = {}
        self._numbers = itertools.count()
        self._reading: asyncio.Task[None] | None = None
        self.is_open = False

    async def open(self) -> "Connection":
        """Wait for the server's greeting, and return this connection. Without a greeting its stream is closed.

        Raises SandboxUnavailable, and InvalidInput for a server of another version.
        """
        try:
            await self._greeted()
        finally:
            if not self.is_open:
                await self._end()
        self._reading = asyncio.create_task(self._read())
        return self

    async def _greeted(self) -> None:
        try:
            self._link.greet()
            async with asyncio.timeout(GREETING_SECONDS):
                await self._link.greeted()
        except TimeoutError as error:
            raise SandboxUnavailable("the sandbox host's server doesn't answer") from error
        except (SandboxUnavailable, ConnectionError, ValueError) as error:  # ValueError: an endless line
            raise await self._why_ended() from error
        self.is_open = True

    async def _why_ended(self) -> ClothoError:
        try:
            async with asyncio.timeout(END_SECONDS):
                return await self._stream.why_ended()
        except TimeoutError:
            return SandboxUnavailable("what runs in place of the sandbox host's server isn't one")

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            await self._end()

    async def _end(self) -> None:
        self._link.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._stream.close()
        except TimeoutError:
            log.warning("a sandbox host's server hasn't ended with its stream")

    async def call(self, call: RemoteCall, file: Path | None = None, to: Path | None = None) -> RemoteAnswer:
        """Send a call with `file`; the answer's goes to `to`. Raises SandboxUnavailable where the stream ends."""
        if not self.is_open or len(self._pending) >= MAX_CALLS:
            raise SandboxUnavailable("the sandbox's host can't be reached now")
        number = next(self._numbers)
        pending = self._pending[number] = _Pending(asyncio.get_running_loop().create_future(), to)
        try:
            await self._link.send(number, pack(call), file)
            answer = await pending.answer
            if isinstance(answer, str):
                raise SandboxUnavailable(answer)
            return RemoteAnswer.model_validate(unpack(answer))
        except (ConnectionError, ValidationError) as error:
            raise SandboxUnavailable(f"the sandbox's host: {type(error).__name__}") from error
        except BaseException:
            if self.is_open:
                # else the server goes on with it
                self._link.cancel(number)
            raise
        finally:
            del self._pending[number]
            self._link.forget(number)

    def _is_pending(self, number: int) -> bool:
        return number in self._pending

    def _file_of(self, number: int) -> Path | None:
        pending = self._pending.get(number)
        return None if pending is None else pending.to

    async def _read(self) -> None:
        reason = "the connection to the sandbox's host was closed"
        try:
            async for received in self._link.received():
                pending = self._pending.get(received.number)
                if received.message is None or pending is None or pending.answer.done():
                    continue
                if received.file_error is not None:
                    pending.answer.set_result(f"a sandbox's file can't be kept here: {received.file_error}")
                else:
                    pending.answer.set_result(received.message)
            reason = str(await self._why_ended())
        except (SandboxUnavailable, OSError) as error:
            reason = f"the connection to the sandbox's host: {error}"
        finally:
            self.is_open = False
            self._link.close()
            for pending in self._pending.values():
                if not pending.answer.done():
                    # a result, not an exception: asyncio logs exceptions that nobody awaits any more
                    pending.answer.set_result(reason)
        await self._end()
