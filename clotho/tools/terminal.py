"""The `terminal` tool: shell commands in the rollout's sandbox."""

import json
from typing import Any

from clotho.sandbox.backend import Job, JobState, JobStatus
from clotho.tools import shell
from clotho.tools.exit_codes import meaning
from clotho.tools.output import shown_output
from clotho.tools.results import RAN_OUT, answer, refusal, text
from clotho.tools.schemas import Schema, boolean, integer, object_schema, string
from clotho.tools.tool import USUAL, Arguments, CallContext, Tool, ToolOutcome, ToolSettings

MAX_SESSIONS = 64
SESSION_PREFIX = "proc_"


def longest_seconds(settings: ToolSettings) -> float:
    """The longest time that a command in the foreground may ask for."""
    return max(settings.terminal_timeout, settings.longest_command_seconds)


def _parameters(longest: float) -> Schema:
    return object_schema(
        "command",
        command=string("The command, run by bash"),
        background=boolean(
            "Start it and return at once with a session_id for the process tool", default=False
        ),
        timeout=integer(f"Seconds a foreground command may take, at most {longest:g}", minimum=1),
        workdir=string("Directory to run it in; the current one by default"),
        pty=boolean("Give it a terminal, for interactive programs", default=False),
        # this and watch_patterns are accepted for datasets that pass them
        notify_on_complete=boolean("Nothing interrupts you here: wait with the process tool", default=False),
        watch_patterns={
            "type": "array",
            "items": {"type": "string"},
            "description": "Nothing interrupts you here: look at the output with the process tool",
        },
    )


class Terminal(Tool):
    name = "terminal"
    toolset = "terminal"
    called_by_code = True
    description = (
        "Run a shell command in your sandbox, which keeps its files for the whole task. Working directory "
        "and exported variables carry over from one command to the next. The result comes as soon as the "
        "command ends. Use background=true for servers and other long-running processes, and the process "
        "tool to look at them; do not use nohup or a trailing &. To read, write, edit or search files, prefer "
        "read_file, write_file, patch and search_files over cat, echo, sed and grep."
    )
    parameters = _parameters(longest_seconds(USUAL))

    def parameters_in(self, settings: ToolSettings) -> Schema:
        return _parameters(longest_seconds(settings))

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        if "\0" in arguments["command"] + arguments.get("workdir", ""):
            return refused("A command can't hold a NUL character.")
        if arguments.get("background", False):
            return await self._background(arguments, context)
        timeout = arguments.get("timeout", context.settings.terminal_timeout)
        longest = longest_seconds(context.settings)
        if timeout > longest:
            return refused(
                f"Foreground timeout {timeout}s is over the maximum of {longest:g}s. "
                "Use background=true for longer work."
            )
        if context.seconds_left is not None:
            timeout = min(timeout, context.seconds_left)
        job = _job(arguments, context, timeout=timeout)
        status = await shell.finish(job, context)
        output = await shown_output(context.sandbox, job.key, status.output_size, job.pty)
        return ToolOutcome(content=_foreground_result(job, status, output), state=shell.after(job.key))

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome | None:
        """Run the command again; a background process keeps the name by which the model knows it."""
        if not arguments.get("background", False):
            return await self.run(arguments, context)
        name = _session_shown(shown)
        return None if name is None else await self._background(arguments, context, name)

    async def _background(
        self, arguments: Arguments, context: CallContext, name: str | None = None
    ) -> ToolOutcome:
        key = context.job_key()
        sessions = await context.sandbox.sessions()
        # Without this call's own, which a repeated attempt finds among them.
        live = [s for s in sessions if s.key != key and s.status.state in shell.UNFINISHED]
        if len(live) >= MAX_SESSIONS:
            return refused(
                f"{MAX_SESSIONS} background processes are running. Kill some with the process tool."
            )
        job = _job(arguments, context, session=name or session_id(key))
        await context.sandbox.start(job)
        status = await context.sandbox.wait(key, 0)
        fields: dict[str, Any] = {
            "output": "Background process started",
            "session_id": job.session,
            "pid": status.pid,
            "exit_code": 0,
            "error": None,
        }
        if arguments.get("notify_on_complete", False) or arguments.get("watch_patterns"):
            fields["note"] = "Nothing will notify you here: use the process tool to wait or to look."
        return answer(**fields)


def session_id(key: str) -> str:
    """The name by which the model knows background job `key`."""
    return SESSION_PREFIX + key[:12]


def _session_shown(result: str) -> str | None:
    """The session that a result names; None where nothing was started."""
    try:
        found = json.loads(result)
    except ValueError:
        return None
    session = found.get("session_id") if isinstance(found, dict) else None
    return session if isinstance(session, str) else None


def refused(error: str) -> ToolOutcome:
    return refusal(error, output="", exit_code=-1)


def _job(
    arguments: Arguments, context: CallContext, timeout: float | None = None, session: str | None = None
) -> Job:
    """The job of this call: the first one starts in the configured directory, others where the last one ended."""
    previous = shell.last_command(context)
    return Job(
        key=context.job_key(),
        script=arguments["command"],
        after=previous,
        workdir=arguments.get("workdir") or (None if previous else context.settings.terminal_cwd),
        timeout=timeout,
        session=session,
        pty=arguments.get("pty", False),
    )


def _foreground_result(job: Job, status: JobStatus, output: str) -> str:
    notices = {
        JobState.TIMEOUT: f"[Command timed out after {job.timeout:g}s]",
        JobState.OUTPUT_LIMIT: f"[Command ended: it wrote more than {job.max_output:,} bytes]",
    }
    ran_out = f"[{RAN_OUT[status.exhausted]}]" if status.exhausted else None
    for notice in filter(None, (notices.get(status.state), ran_out)):
        output = f"{output}\n{notice}" if output else notice
    fields: dict[str, Any] = {"output": output, "exit_code": status.exit_code, "error": None}
    # the notice explains the exit code better than the command's name
    if status.exit_code is not None and not ran_out and (explained := meaning(job.script, status.exit_code)):
        fields["exit_code_meaning"] = explained
    return text(**fields)
