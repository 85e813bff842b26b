"""Small records that a call leaves in its sandbox, written by the first attempt and read by the later ones.

A record is the output of a job under a key of the call: `cat` of the record itself, so that whichever attempt
starts it first has written it, and all read the same. Its file is the sandbox's own, out of commands' reach.
"""

from contextlib import suppress

from clotho.errors import CommandConflict
from clotho.sandbox.backend import Job, JobState
from clotho.tools import shell
from clotho.tools.tool import CallContext

COPY = "exec /bin/cat"


async def recall(context: CallContext, name: str) -> bytes | None:
    """Read record `name`, which an attempt of this call has left; None without one."""
    key = context.job_key("record", name)
    status = await context.sandbox.wait(key, 0)
    return None if status.state is JobState.ABSENT else await _read(key, context)


async def record(context: CallContext, name: str, content: bytes) -> bytes:
    """Leave record `name`, and return what it holds: another attempt may have been first."""
    key = context.job_key("record", name)
    with suppress(CommandConflict):  # the same command with other input: another attempt was first
        await context.sandbox.start(Job(key=key, script=COPY, stdin=content))
    return await _read(key, context)


async def _read(key: str, context: CallContext) -> bytes:
    status = await shell.follow(context.sandbox, key, context)
    if status.state is not JobState.EXITED or status.exit_code != 0:
        raise shell.lost(f"record {key} was damaged: {status.state}", status)
    return await context.sandbox.output(key)
