"""The `process` tool: background processes that `terminal` started."""

import time
from typing import Any

from clotho.sandbox.backend import JobState, JobStatus, SessionInfo
from clotho.tools import shell, write_once
from clotho.tools.output import last_output
from clotho.tools.results import RAN_OUT, answer, problem
from clotho.tools.schemas import integer, object_schema, string
from clotho.tools.terminal import MAX_SESSIONS, SESSION_PREFIX
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

BUFFER_CHARS = 200_000
PREVIEW_CHARS = 1_000
WAIT_CHARS = 2_000
LOG_LINES = 200
COMMAND_CHARS = 200
# what existing datasets show after a kill
KILLED_EXIT = -15
ACTIONS = ("poll", "log", "wait", "kill", "write", "submit", "close")
ONLY_LOOKS = frozenset({"list", "poll", "log", "wait"})
"""The actions that change nothing. The others reach a process that its sandbox took along: none is replayed."""


class Process(Tool):
    name = "process"
    toolset = "terminal"
    description = (
        "Look after background processes started with terminal(background=true). list: all of them. poll: "
        "status and the latest output. log: the last lines, or lines from offset on. wait: until it ends or "
        "the timeout is over. kill: end it. write: send data to its input. submit: send data and Enter. "
        "close: end its input."
    )
    parameters = object_schema(
        "action",
        action=string("What to do", one_of=("list", *ACTIONS)),
        session_id=string("From terminal; for every action but list"),
        data=string("Text for write and submit"),
        timeout=integer("Seconds that wait waits at most", minimum=1),
        offset=integer("Lines that log skips; 0 shows the last lines"),
        limit=integer("How many lines log shows", minimum=1),
    )

    def changes(self, arguments: Arguments) -> bool:
        return arguments["action"] not in ONLY_LOOKS

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        known = await context.sandbox.sessions()
        # MCP servers and harnesses in the sandbox have sessions, too
        sessions = [session for session in known if session.session.startswith(SESSION_PREFIX)]
        if any(session.status.state is JobState.LOST for session in sessions):
            await shell.require_alive(context)
        action = arguments["action"]
        if action == "list":
            newest = sorted(sessions, key=lambda session: session.started)[-MAX_SESSIONS:]
            return answer(processes=[await _description(session, context) for session in newest])
        if "session_id" not in arguments:
            return problem(f"session_id is required for {action}")
        session = next((s for s in sessions if s.session == arguments["session_id"]), None)
        if session is None:
            return problem(f"No process with id {arguments['session_id']}", status="not_found")
        match action:
            case "poll":
                return answer(**await _description(session, context))
            case "log":
                return await _log(session, arguments, context)
            case "wait":
                return await _wait(session, arguments, context)
            case "kill":
                return await _kill(session, context)
            case "close":
                await context.sandbox.close_input(session.key)
                return answer(status="ok", message="The process's input is closed")
        return await _send(session, arguments.get("data", "") + ("\n" if action == "submit" else ""), context)


async def _log(session: SessionInfo, arguments: Arguments, context: CallContext) -> ToolOutcome:
    output = await last_output(context.sandbox, session.key, session.status.output_size, BUFFER_CHARS)
    lines = output.removesuffix("\n").split("\n") if output else []
    limit, offset = arguments.get("limit", LOG_LINES), arguments.get("offset", 0)
    shown = lines[offset : offset + limit] if offset > 0 else lines[-limit:]
    return answer(
        session_id=session.session,
        status=_state(session.status),
        output="\n".join(shown),
        total_lines=len(lines),
        showing=f"{len(shown)} lines",
    )


async def _wait(session: SessionInfo, arguments: Arguments, context: CallContext) -> ToolOutcome:
    settings = context.settings
    timeout = min(arguments.get("timeout", settings.terminal_timeout), settings.longest_command_seconds)
    status = await shell.follow(context.sandbox, session.key, context, timeout)
    if status.state is JobState.LOST:
        await shell.require_alive(context)
    output = await last_output(context.sandbox, session.key, status.output_size, WAIT_CHARS)
    if status.state in shell.UNFINISHED:
        return answer(status="timeout", output=output, timeout_note=f"Still running after {timeout:g}s")
    return answer(status=_state(status), **_end(status), output=output)


async def _kill(session: SessionInfo, context: CallContext) -> ToolOutcome:
    if session.status.state is not JobState.LOST:
        await context.sandbox.kill(session.key)  # also what a process that has exited has left running
    if session.status.state not in (JobState.RUNNING, JobState.KILLED):
        return answer(status="already_exited", exit_code=_exit_code(session.status))
    return answer(status="killed", session_id=session.session, exit_code=KILLED_EXIT)


async def _send(session: SessionInfo, data: str, context: CallContext) -> ToolOutcome:
    """Send input once, however many attempts ask. The record says that the process lived at the first of them."""
    if await write_once.recall(context, "input") is None:
        if session.status.state not in shell.UNFINISHED:
            return problem(
                "The process has ended", status="already_exited", exit_code=_exit_code(session.status)
            )
        await write_once.record(context, "input", b"")
    await context.sandbox.send_input(session.key, data.encode(), context.job_key("input"))
    return answer(status="ok", bytes_written=len(data.encode()))


async def _description(session: SessionInfo, context: CallContext) -> dict[str, Any]:
    status = session.status
    fields: dict[str, Any] = {
        "session_id": session.session,
        "command": session.script[:COMMAND_CHARS],
        "status": _state(status),
        "pid": status.pid,
        "uptime_seconds": int(time.time() - session.started),
        "output_preview": await last_output(context.sandbox, session.key, status.output_size, PREVIEW_CHARS),
    }
    return fields if status.state in shell.UNFINISHED else fields | _end(status)


def _end(status: JobStatus) -> dict[str, Any]:
    note = {"note": RAN_OUT[status.exhausted]} if status.exhausted else {}
    return {"exit_code": _exit_code(status), **note}


def _state(status: JobStatus) -> str:
    if status.state is JobState.LOST:
        return "lost"
    return "running" if status.state in shell.UNFINISHED else "exited"


def _exit_code(status: JobStatus) -> int | None:
    return KILLED_EXIT if status.state is JobState.KILLED else status.exit_code
