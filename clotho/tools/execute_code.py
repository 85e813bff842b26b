"""The `execute_code` tool: Python in the sandbox that calls other tools.

The code is a job, which outlives the worker. Its calls of tools are numbered, and each is journalled under its
number before it is answered: an attempt that follows a worker's death goes on with the calls that aren't.

The code's time is counted by the attempt that serves it: while no worker is there to answer, none passes. Its calls
share that time: none goes on after it, and none is made after the code's end.
"""

import asyncio
import hashlib
import json
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from clotho.errors import FileRefused
from clotho.sandbox.backend import FileContent, Job, JobState, JobStatus
from clotho.tools import code_stubs, shell
from clotho.tools.claims import is_first
from clotho.tools.output import plain, shown_output, truncated
from clotho.tools.results import RAN_OUT, refusal, text
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome
from clotho.untrusted import Unreadable, in_thread_if_long, load_json

SECONDS = 300.0
MOST_CALLS = 50
STDERR_CHARS = 10_000
TIMED_OUT = 124
"""The exit code that a shell gives a command which took too long."""
MOST_REQUEST_BYTES = 2_000_000
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.1
"""Seconds between two looks for a request of the code's."""
LONGEST_LOOK = 2.0
"""Seconds that count of one look without a request: a worker that stood still for longer wasn't there."""
LEAST_SECONDS = 0.1
"""Seconds that a call is given at least, so that it is made at all."""
CLOSING_SECONDS = 5.0
"""Seconds after the code's time in which a call of its may come to an end by itself, before it is broken off."""


class _NotMade(Exception):
    """A call was not made: dead code asked for it, or the code's time ended first."""


class ExecuteCode(Tool):
    name = "execute_code"
    toolset = "code_execution"
    description = (
        "Run Python 3 in the sandbox, where it can call tools: `from clotho_tools import read_file, write_file, "
        "patch, search_files, terminal, web_search, web_extract` (those that you are offered), and tools named "
        "mcp_…. A call takes the tool's arguments and returns its result as a dict. Use it for loops over many "
        "calls, and to filter what they return: only what the code prints comes back. At most "
        f"{MOST_CALLS} calls and {SECONDS:g} seconds."
    )
    parameters = object_schema("code", code=string("The Python program"))

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome | None:
        outcome, repeatable = await self._run(arguments, context)
        return outcome if repeatable else None

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        outcome, _ = await self._run(arguments, context)
        return outcome

    async def _run(self, arguments: Arguments, context: CallContext) -> tuple[ToolOutcome, bool]:
        """The outcome, and whether the code may be run again in the next sandbox with the same effect."""
        if "\0" in arguments["code"]:
            return refusal("Code can't hold a NUL character."), True
        callable_ = _callable(context)
        key = context.job_key()
        previous = shell.last_command(context)
        # without a timeout of the job's: it would count time in which no worker answers the code
        job = Job(
            key=key,
            script=code_stubs.script(key, arguments["code"], code_stubs.stubs(callable_, MOST_CALLS)),
            after=previous,
            workdir=None if previous else context.settings.terminal_cwd,
        )
        seconds = SECONDS if context.seconds_left is None else min(SECONDS, context.seconds_left)
        await context.sandbox.start(job)
        execution = Execution(job, context)
        status = await execution.follow(seconds)
        content = await _result(job, status, seconds, context, execution.calls)
        return ToolOutcome(content=content, state=execution.state), execution.repeatable


def _callable(context: CallContext) -> list[Tool]:
    """The tools that the code of a call may call."""
    assert context.dispatcher is not None, "code was run without a dispatcher"
    offered = (context.dispatcher.tool(name) for name in sorted(context.offered))
    return [tool for tool in offered if tool is not None and tool.called_by_code]


class Execution:
    """Code that runs, and the calls that it makes."""

    def __init__(self, job: Job, context: CallContext) -> None:
        self.calls = 0
        self.state: dict[str, JsonValue] = {}
        self.repeatable = True
        """Whether the code may be run again in the next sandbox with the same effect."""
        self._callable = frozenset(tool.name for tool in _callable(context))
        self._job = job
        self._context = context
        self._folder = code_stubs.folder_of(job.key)

    async def follow(self, seconds: float) -> JobStatus:
        """Answer the code's calls until it has ended, or end it when `seconds` of this attempt have passed.

        Raises SandboxLost where it was lost with its sandbox.
        """
        sandbox, pause, passed = self._context.sandbox, FIRST_PAUSE, 0.0
        while True:
            began = time.monotonic()
            status = await sandbox.wait(self._job.key, pause)
            self._context.progress(status.output_size)
            if status.state is JobState.LOST:
                raise shell.lost(f"code {self._job.key} was running in a sandbox that is gone", status)
            if status.state not in shell.UNFINISHED:
                await self._find_answered()
                return status
            if passed >= seconds:
                # the next look finds it ended, and counts the calls that were answered
                await sandbox.kill(self._job.key)
            elif await self._answer_within(seconds - passed):
                pause = FIRST_PAUSE
                passed += time.monotonic() - began
            else:
                pause = min(2 * pause, LONGEST_PAUSE)
                passed += min(time.monotonic() - began, LONGEST_LOOK)

    async def _find_answered(self) -> None:
        """Find the calls that an earlier attempt answered; make none of the others, since the code is dead.

        The code may have written anything in place of answers, so the journal says which calls were made.
        """
        # at most 0 bytes: an answer that exists is too large
        while (await self._context.sandbox.read_file(self._answer(self.calls), 0)).error in (
            None,
            "too_large",
        ):
            try:
                if not await self._answer_next(None):
                    return
            except _NotMade:
                self.calls -= 1
                return

    async def _answer_within(self, seconds: float) -> bool:
        """Make the next call, if the code has asked for it; wait no longer than `seconds`."""
        try:
            return await self._answer_next(max(LEAST_SECONDS, seconds))
        except _NotMade:
            return True

    async def _answer_next(self, seconds: float | None) -> bool:
        """Make the next call, if the code has asked for it; None: only look up its outcome, or raise _NotMade."""
        if self.calls == MOST_CALLS:
            return False
        sandbox, number = self._context.sandbox, self.calls
        asked = await sandbox.read_file(f"{self._folder}/{number}.request", MOST_REQUEST_BYTES)
        if asked.error is not None and asked.error != "too_large":
            return False
        self.calls += 1
        outcome = await self._outcome(number, asked, seconds)
        self.state |= outcome.state
        content = outcome.content.encode(errors="replace")
        with suppress(FileRefused):  # the code has put something else there, and waits in vain
            # Under a key, so that an attempt that comes after this one finds the answer written, and writes
            # no other.
            key = self._context.job_key("answer", number)
            await sandbox.write_file(self._answer(number), content, key=key)
        return True

    def _answer(self, number: int) -> str:
        return f"{self._folder}/{number}.answer"

    async def _outcome(self, number: int, asked: FileContent, seconds: float | None) -> ToolOutcome:
        context = self._context
        assert context.dispatcher is not None
        dispatcher = context.dispatcher
        name, arguments = await in_thread_if_long(len(asked.content), _request, asked)
        inner = replace(
            context,
            call=(*context.call, "inner", number),
            tool_call_id=f"{context.tool_call_id}-{number}",
            state={**context.state, **self.state},
            seconds_left=seconds,
            claim=lambda: is_first(context.once, f"{number:02}-claim"),
            # under its number: two calls of the code may have parts of one name
            once=lambda part, work: context.once(f"{number:02}-{part}", work),
        )

        async def made() -> ToolOutcome:
            if seconds is None:
                raise _NotMade
            # In here, where it ends the call: the journal goes on with one that is no longer waited for.
            deadline = asyncio.timeout(seconds + CLOSING_SECONDS)
            try:
                async with deadline:
                    done = await dispatcher.run(name, arguments, self._callable, inner)
            except TimeoutError:
                if not deadline.expired():
                    raise
                raise _NotMade from None
            return ToolOutcome(content=done.content, state=done.state)

        tool = dispatcher.tool(name)
        if tool is not None and name in self._callable and tool.sandboxed:
            # here and not in `made`: the calls that an earlier attempt made count, too
            self.repeatable &= tool.repeats(context.settings)
        # A call in a lost sandbox has to be made in the next one, too; a search hasn't.
        in_sandbox = tool is None or tool.sandboxed
        asked_for = hashlib.sha256(f"{name} {arguments}".encode(errors="replace")).hexdigest()[:16]
        # by what it asks, too: code that runs again may ask something else under this number
        place = f"l{context.lease}" if in_sandbox else asked_for
        return await context.once(f"{number:02}-{place}", made)


def _request(asked: FileContent) -> tuple[str, str]:
    """The tool and its arguments as JSON text; whatever the file holds, the dispatcher has an answer for it."""
    try:
        request = load_json(asked.content)
        return str(request["tool"]), json.dumps(request["arguments"], ensure_ascii=False)
    except (Unreadable, KeyError, TypeError):
        return "", "{}"


async def _result(job: Job, status: JobStatus, seconds: float, context: CallContext, calls: int) -> str:
    output, errors = await asyncio.gather(
        shown_output(context.sandbox, job.key, status.output_size),
        context.sandbox.read_file(f"{code_stubs.folder_of(job.key)}/stderr", code_stubs.STDERR_BYTES),
    )
    stderr = truncated(await asyncio.to_thread(plain, errors.content), STDERR_CHARS)
    notices = {
        JobState.KILLED: f"The code was ended after {seconds:g} s",
        JobState.OUTPUT_LIMIT: f"The code was ended: it printed more than {job.max_output:,} bytes",
    }
    notice = notices.get(status.state) or (RAN_OUT[status.exhausted] if status.exhausted else None)
    said = "\n".join(filter(None, (stderr.rstrip("\n"), notice)))
    # only `follow` kills it, at the end of its time
    late = status.state is JobState.KILLED
    exit_code = TIMED_OUT if late else status.exit_code
    failed = exit_code != 0
    fields: dict[str, Any] = {
        "status": "timeout" if late else "error" if failed else "success",
        "output": output,
        "exit_code": exit_code,
        "tool_calls_made": calls,
        "error": said or f"The code ended with exit code {exit_code}" if failed else None,
    }
    if said and not failed:
        fields["stderr"] = said
    return text(**fields)
