"""The standard streams of a server's program on this host, bounded, as messages of the `mcp` package."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from clotho.errors import HostUnavailable
from clotho.host_failures import described, is_host_failure
from clotho.plugins.mcp.session import MOST_CALL_BYTES, MOST_MESSAGE_BYTES, NotStarted
from clotho.processes.parent_death import with_parent_death_signal
from clotho.tools.secrecy import Redactor
from clotho.untrusted import Excessive, ValueCount, in_thread_if_long

STOP_SECONDS = 2.0
ERROR_BYTES = 5 * 1024
ERROR_CHARS = 300
READ_BYTES = 1 << 16


class Child:
    """A program that speaks MCP over its standard streams; it doesn't outlive this process."""

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], secrets: Mapping[str, str]
    ) -> None:
        self._command = command
        self._variables = {**variables, **secrets}
        self._redact = Redactor(secrets.values())
        self._errors = b""
        self._received = 0
        self._called = False
        self._killed = False
        self._fault: str | None = None
        self._process: asyncio.subprocess.Process | None = None

    def begin_call(self) -> None:
        """Count the bytes that it sends from zero."""
        self._received, self._called = 0, True

    @property
    def fault(self) -> tuple[str, bool]:
        """Why the conversation ended, and whether another attempt may go better."""
        code = self._process.returncode if self._process is not None else None
        said = self._redact(self._errors.decode(errors="replace")).strip()[-ERROR_CHARS:]
        ended = self._fault or ("it doesn't speak MCP" if code is None else f"it ended with exit code {code}")
        # Killed before it was called, for the host's memory: a call may have used that up itself.
        return (f"{ended}: {said}" if said else ended), self._killed and not self._called

    def may_have_acted(self) -> bool:
        return True

    @property
    def wait(self) -> timedelta | None:
        return None

    def outage(self) -> bool:
        return False

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[Any, Any]]:
        """Start it; the streams of messages from it and to it."""
        import anyio

        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *with_parent_death_signal(self._command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # no others: the worker's environment holds keys
                env=self._variables,
                limit=MOST_MESSAGE_BYTES,
                # a group of its own, so that `_stop` can kill all that the program has started
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            if is_host_failure(error):
                raise HostUnavailable(f"no process for an MCP server: {described(error)}") from error
            raise NotStarted(str(error), passing=False) from error
        received, read = anyio.create_memory_object_stream[Any](0)
        write, to_send = anyio.create_memory_object_stream[Any](0)
        pumps = [
            asyncio.create_task(self._receive(process, received)),
            asyncio.create_task(_send(process, to_send)),
            asyncio.create_task(self._hear(process)),
        ]
        try:
            yield read, write
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for stream in (received, read, write, to_send):
                stream.close()
            # shielded: a call that is cancelled leaves no process either
            await asyncio.shield(_stop(process, at_once=self._fault is not None))

    async def _receive(self, process: asyncio.subprocess.Process, received: Any) -> None:
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        assert process.stdout is not None
        with received, suppress(anyio.BrokenResourceError):
            while (line := await self._line(process.stdout)) is not None:
                if not line.startswith(b"{"):
                    continue  # a line of a log: many servers print some
                try:
                    message = await in_thread_if_long(
                        len(line), jsonrpc_message_adapter.validate_json, line, by_name=False
                    )
                except ValueError:  # a log may hold JSON, too
                    continue
                await received.send(SessionMessage(message))
            if self._fault is None:
                # its output ends before its exit code is known, which `fault` tells
                with suppress(TimeoutError):
                    code = await asyncio.wait_for(process.wait(), STOP_SECONDS)
                    self._killed = code == -signal.SIGKILL

    async def _line(self, stdout: asyncio.StreamReader) -> bytes | None:
        """The next line; None at the end, or where it has sent too much."""
        try:
            line = await stdout.readline()
        except ValueError:  # readline's, for a line beyond the stream's limit
            self._fault = f"it sent a message of more than {MOST_MESSAGE_BYTES:,} bytes"
            return None
        self._received += len(line)
        if self._received > MOST_CALL_BYTES:
            self._fault = f"it sent more than {MOST_CALL_BYTES:,} bytes at one call"
            return None
        try:
            # before the line is parsed: 8 MiB of JSON can be millions of values
            ValueCount().feed(line)
        except Excessive as error:
            self._fault = f"it sent a message that isn't read: {error}"
            return None
        return line or None

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        """Keep the last of what it prints to standard error."""
        assert process.stderr is not None
        while piece := await process.stderr.read(4096):
            self._errors = (self._errors + piece)[-ERROR_BYTES:]


async def _send(process: asyncio.subprocess.Process, to_send: Any) -> None:
    assert process.stdin is not None
    with to_send, suppress(ConnectionError):
        async for each in to_send:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode(errors="replace") + b"\n")
            await process.stdin.drain()


async def _stop(process: asyncio.subprocess.Process, at_once: bool) -> None:
    """End its input, then, or `at_once`, the program and all that it has started."""
    assert process.stdin is not None
    # by the protocol, a server ends when its input does
    process.stdin.close()
    if not at_once:
        with suppress(TimeoutError):
            await asyncio.wait_for(_wait_for_end(process), STOP_SECONDS)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):  # a descendant that left the group may hold the streams
        await asyncio.wait_for(_wait_for_end(process), STOP_SECONDS)


async def _wait_for_end(process: asyncio.subprocess.Process) -> None:
    """Wait for the program's end, of which asyncio tells only once its pipes are read to their ends."""
    assert process.stdout is not None and process.stderr is not None
    for stream in (process.stdout, process.stderr):
        while await stream.read(READ_BYTES):
            pass
    await process.wait()
