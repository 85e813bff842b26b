"""Running commands as jobs in a rollout's sandbox: started at most once, followed to their end.

The working directory and exported variables pass from one foreground command to the next by job key: the
slot "shell" of a rollout's tool state holds {"job": key of the last one}.
"""

from collections.abc import Mapping

from pydantic import JsonValue

from clotho.errors import SandboxLost
from clotho.sandbox.backend import Job, JobState, JobStatus, SandboxInstance
from clotho.tools.tool import CallContext

SLOT = "shell"
SLICE_SECONDS = 2.0
"""Seconds between two reports of progress."""

SYSTEM_PATH = "PATH=/usr/local/bin:/usr/bin:/bin"
"""The model may have exported another."""

UNFINISHED = frozenset({JobState.ABSENT, JobState.RUNNING})


def last_command(context: CallContext) -> str | None:
    """Key of the foreground command whose directory and variables the next one inherits."""
    return last_job(context.state)


def last_job(state: Mapping[str, JsonValue]) -> str | None:
    match state.get(SLOT):
        case {"job": str(key)}:
            return key
    return None


def job(context: CallContext, *suffix: str | int, script: str, timeout: float) -> Job:
    """The job of a tool's own command: it starts where the model's last one ended, or as configured."""
    previous = last_command(context)
    return Job(
        key=context.job_key(*suffix),
        script=f"{SYSTEM_PATH}\n{script}",
        after=previous,
        workdir=None if previous else context.settings.terminal_cwd,
        timeout=timeout,
    )


def after(key: str) -> dict[str, JsonValue]:
    """The tool state that a foreground command leaves."""
    return {SLOT: {"job": key}}


async def finish(command: Job, context: CallContext) -> JobStatus:
    """Start `command`, or attach to it, and follow it to its end.

    Raises SandboxLost where it was running in a sandbox that is gone: it is never run again.
    """
    await context.sandbox.start(command)
    status = await follow(context.sandbox, command.key, context)
    if status.state is JobState.LOST:
        raise lost(f"command {command.key} was running in a sandbox that is gone", status)
    return status


def lost(message: str, status: JobStatus) -> SandboxLost:
    """The error for a job that was lost, naming what it had run out of."""
    cause = f", which ran out of {status.exhausted}" if status.exhausted else ""
    return SandboxLost(message + cause, status.exhausted)


async def require_alive(context: CallContext) -> None:
    """Raise SandboxLost where the sandbox is gone: the model must not be shown a process that was lost with it."""
    # no job has this key: a living sandbox says so, and one that is gone raises
    await context.sandbox.wait(context.job_key("alive"), 0)


async def follow(
    sandbox: SandboxInstance, key: str, context: CallContext, seconds: float | None = None
) -> JobStatus:
    """Wait until a job has ended, or for `seconds`; report progress meanwhile."""
    waited = 0.0
    while True:
        slice_ = SLICE_SECONDS if seconds is None else min(SLICE_SECONDS, seconds - waited)
        status = await sandbox.wait(key, slice_)
        context.progress(status.output_size)
        waited += slice_
        if status.state not in UNFINISHED or (seconds is not None and waited >= seconds):
            return status
