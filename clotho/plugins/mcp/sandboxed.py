"""A server as a job of the rollout's sandbox, which outlives the worker.

What it is sent goes in under keys, and what it answers stays in the job's output: an attempt that follows a
worker's death sends nothing twice, and finds the answer.
"""

import asyncio
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue, ValidationError

from clotho.escaping import truncate_middle
from clotho.identifiers.ids import job_key
from clotho.imported import load
from clotho.plugins.mcp.answers import definition_of, shorten, text_of
from clotho.plugins.mcp.session import (
    MOST_MESSAGE_BYTES,
    MOST_TOOLS,
    Answer,
    Definition,
    NoAnswer,
    NotStarted,
    Refused,
)
from clotho.plugins.mcp.settings import McpServer
from clotho.sandbox.backend import Job, JobState, SandboxInstance
from clotho.tools import shell
from clotho.untrusted import Excessive, Unreadable, load_json

MOST_STARTS = 20
"""Of one server in one sandbox."""
MOST_PAGES = 16
GREETING = ("initialize", *(f"tools-{page}" for page in range(MOST_PAGES)))
"""The requests that a server is sent first, in this order."""
READ_BYTES = 1 << 20
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.1
MOST_ERROR_CHARS = 2_000
ENDING_SECONDS = 10.0
PROTOCOL_VERSION = "2025-06-18"
NOT_SUPPORTED = -32601

Message = dict[str, Any]


@dataclass
class _Run:
    """One start of the server, and how far its output was read."""

    key: str
    offset: int = 0
    rest: bytes = b""
    answers: dict[str, Message] = field(default_factory=dict)
    noise: str = ""
    """The last line that was no JSON."""
    definitions: Sequence[Definition] | None = None


class SandboxedServer:
    """A server in the sandbox of one lease; `scope` tells it from servers of other leases."""

    def __init__(self, name: str, server: McpServer, scope: tuple[str | int, ...], directory: str) -> None:
        self._name = name
        self._server = server
        self._scope = scope
        self._directory = directory
        self._run: _Run | None = None
        self._number = 0

    @property
    def definitions(self) -> Sequence[Definition]:
        return (self._run and self._run.definitions) or ()

    async def start(self, sandbox: SandboxInstance) -> int:
        """Start the server if it isn't running, and read its tools. Returns the number of its start.

        Raises NotStarted.
        """
        while True:
            # a worker that takes over tries the starts from 0 on: those that ended say so
            run = self._run if self._run is not None else _Run(self._key(self._number))
            self._run = run
            status = await sandbox.wait(run.key, 0)
            if status.state is JobState.LOST:
                raise shell.lost(f"MCP server {self._name} was running in a sandbox that is gone", status)
            if status.state not in shell.UNFINISHED:
                self._number, self._run = self._number + 1, None
                if self._number >= MOST_STARTS:
                    raise NotStarted(f"it has ended {MOST_STARTS} times", passing=False)
                continue
            if run.definitions is None:
                # a job that runs already, since another worker started it, is attached to
                await sandbox.start(self._job(run.key))
                run.definitions = await self._greet(sandbox, run)
            return self._number

    async def call(
        self,
        sandbox: SandboxInstance,
        number: int,
        key: str,
        tool: str,
        arguments: dict[str, JsonValue],
        seconds: float,
    ) -> Answer:
        """The answer to the call `key`, which is made at most once, by start `number` of the server.

        Raises NoAnswer, and Refused.
        """
        await load("mcp_types")
        from mcp_types import CallToolResult

        # an earlier start may have ended with the answer in its output
        current = self._run if number == self._number else None
        run = current or _Run(self._key(number))
        params = {"name": tool, "arguments": arguments}
        try:
            result = await self._ask(sandbox, run, key, "tools/call", params, seconds)
        except NotStarted as error:
            await _end(sandbox, run)
            raise NoAnswer(str(error)) from error
        try:
            answer = CallToolResult.model_validate(result)
        except ValidationError as error:
            raise Refused("its answer is invalid: no result of a call") from error
        return Answer(text_of(answer), answer.is_error)

    def read_again(self) -> None:
        """Forget how far the output was read: an earlier attempt's answer may be in it."""
        if self._run is not None:
            self._run = _Run(self._run.key, definitions=self._run.definitions)

    async def _greet(self, sandbox: SandboxInstance, run: _Run) -> Sequence[Definition]:
        await load("mcp_types")
        from mcp_types import Tool

        client = {"name": "clotho", "version": "1"}
        hello = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        found: list[Definition] = []
        try:
            await self._ask(sandbox, run, "initialize", "initialize", hello, self._server.start_seconds)
            await self._say(sandbox, run, "initialized", {"method": "notifications/initialized"})
            cursor: dict[str, JsonValue] = {}
            for page in range(MOST_PAGES):
                listed = await self._ask(
                    sandbox, run, f"tools-{page}", "tools/list", cursor, self._server.start_seconds
                )
                found += [definition_of(Tool.model_validate(tool)) for tool in listed.get("tools", ())]
                if len(found) > MOST_TOOLS:
                    raise NotStarted(f"it has more than {MOST_TOOLS} tools", passing=False)
                if not listed.get("nextCursor"):
                    return found
                cursor = {"cursor": listed["nextCursor"]}
        except (ValidationError, Refused, TypeError) as error:
            await _end(sandbox, run)
            raise NotStarted(f"it doesn't speak MCP: {truncate_middle(str(error), 300)}", False) from error
        except NotStarted:
            await _end(sandbox, run)
            raise
        raise NotStarted(f"its tools fill more than {MOST_PAGES} pages", passing=False)

    async def _ask(
        self, sandbox: SandboxInstance, run: _Run, number: str, method: str, params: Message, seconds: float
    ) -> Message:
        """The result of a request. Raises NotStarted where there is none, and Refused for an error."""
        await self._say(sandbox, run, number, {"id": number, "method": method, "params": params})
        answer = await self._answer(sandbox, run, number, time.monotonic() + seconds, seconds)
        if isinstance(error := answer.get("error"), dict):
            raise Refused(truncate_middle(str(error.get("message")), MOST_ERROR_CHARS))
        result = answer.get("result")
        if not isinstance(result, dict):
            raise Refused("its answer is invalid: no result")
        shorten(result)
        return result

    async def _say(self, sandbox: SandboxInstance, run: _Run, name: str, message: Message) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
        await sandbox.send_input(run.key, line.encode(), job_key(run.key, "in", name))

    async def _answer(
        self, sandbox: SandboxInstance, run: _Run, number: str, deadline: float, seconds: float
    ) -> Message:
        pause = 0.0
        while True:
            status = await sandbox.wait(run.key, pause)
            while run.offset < status.output_size and number not in run.answers:
                chunk = await sandbox.output(run.key, run.offset, READ_BYTES)
                if not chunk:
                    break
                run.offset += len(chunk)
                await self._read(sandbox, run, chunk, number, deadline)
                # a server that prints without end must not hold the call
                if time.monotonic() > deadline:
                    break
            if number in run.answers:
                return run.answers.pop(number)
            if len(run.rest) > MOST_MESSAGE_BYTES:
                raise NotStarted(f"it sent a message of more than {MOST_MESSAGE_BYTES:,} bytes", False)
            if status.state is JobState.LOST:
                raise shell.lost(f"MCP server {self._name} was running in a sandbox that is gone", status)
            if status.state is JobState.OUTPUT_LIMIT:
                raise NotStarted("it sent more than 50,000,000 bytes in all", passing=False)
            if status.state not in shell.UNFINISHED:
                said = f": {run.noise}" if run.noise else ""
                raise NotStarted(f"it ended with exit code {status.exit_code}{said}", passing=False)
            if time.monotonic() > deadline:
                raise NotStarted(f"it gave no answer within {seconds:g} s", passing=True)
            pause = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)

    async def _read(
        self, sandbox: SandboxInstance, run: _Run, chunk: bytes, wanted: str, deadline: float
    ) -> None:
        """Read what the chunk completes; after the deadline the server's requests are left unanswered."""
        *lines, run.rest = (run.rest + chunk).split(b"\n")
        for line, message in await asyncio.to_thread(_all_parsed, lines):
            match message:
                case {"id": str(number), "method": str(method)} | {"id": int(number), "method": str(method)}:
                    if time.monotonic() <= deadline:
                        await self._reply(sandbox, run, number, method)
                # a chunk that is read again may hold all answers to GREETING; those to earlier calls are no use
                case {"id": str(number)} if message is not None and number in (wanted, *GREETING):
                    run.answers[number] = message
                case None if line.strip():
                    run.noise = line[-300:].decode(errors="replace")

    async def _reply(self, sandbox: SandboxInstance, run: _Run, number: str | int, method: str) -> None:
        """Answer a request of the server's: nothing but its ping is served."""
        refused = {"error": {"code": NOT_SUPPORTED, "message": "not supported"}}
        answer: Message = {"result": {}} if method == "ping" else refused
        # repr: the ids 1 and "1" are two
        await self._say(sandbox, run, f"reply-{number!r}", {"id": number, **answer})

    def _key(self, number: int) -> str:
        return job_key(*self._scope, "mcp", self._name, number)

    def _job(self, key: str) -> Job:
        assert self._server.command is not None
        variables = [f"export {name}={shlex.quote(value)}" for name, value in self._server.env.items()]
        # Its standard error would mix with its messages: the end of it follows when the program has ended.
        # In braces: the shell itself opens it then, and knows its process, which others may keep from ending.
        command = f"{{ {shlex.join(self._server.command)}; }} 2> >(exec tail -c 1000 >&2)"
        ended = (
            "code=$?; for _ in {1..100}; do kill -0 $! 2> /dev/null || break; sleep 0.02; done; exit $code"
        )
        script = [shell.SYSTEM_PATH, *variables, command, ended]
        return Job(key=key, script="\n".join(script), workdir=self._directory, session=f"mcp-{self._name}")


async def _end(sandbox: SandboxInstance, run: _Run) -> None:
    """End the server, and wait for that: a later call would be sent to one that is dying."""
    await sandbox.kill(run.key)
    await sandbox.wait(run.key, ENDING_SECONDS)


def _all_parsed(lines: Sequence[bytes]) -> list[tuple[bytes, Message | None]]:
    return [(line, _parse_line(line)) for line in lines]


def _parse_line(line: bytes) -> Message | None:
    """The message in a line; None where it holds none. Raises NotStarted for one beyond the bounds."""
    try:
        found = load_json(line) if line.startswith(b"{") else None
    except Excessive as error:
        raise NotStarted(f"it sent a message that isn't read: {error}", passing=False) from None
    except Unreadable:
        return None
    return found if isinstance(found, dict) else None
