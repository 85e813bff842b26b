"""Jobs of a sandbox: commands that it starts at most once, and their states."""

from clotho.frozen_model import FrozenModel
from clotho.sandbox.exhaustion import Exhausted
from clotho.sandbox.states import JobState

MAX_OUTPUT_BYTES = 50_000_000
"""Bytes that a command may write."""


class Job(FrozenModel):
    """A command and the key under which it runs at most once."""

    key: str
    """32 hexadecimal digits."""
    script: str
    """Given to a fresh `bash -c`."""
    after: str | None = None
    """Key of the job whose working directory and exported variables this one inherits."""
    workdir: str | None = None
    """Overrides the inherited directory."""
    timeout: float | None = None
    """Seconds after which the whole process tree is ended."""
    max_output: int = MAX_OUTPUT_BYTES
    """Bytes of output after which it is ended."""
    stdin: bytes | None = None
    session: str | None = None
    """Set for a background job that the agent talks to later: it then has a writable standard input."""
    pty: bool = False


class JobStatus(FrozenModel):
    state: JobState
    exit_code: int | None
    """A shell's exit code: 124 after a time-out, 137 when killed; None while running, absent or lost."""
    output_size: int
    pid: int | None = None
    exhausted: Exhausted | None = None
    """The resource that a failed or lost command had used up."""


class SessionInfo(FrozenModel):
    """A background job of the agent, as `process list` shows it."""

    key: str
    session: str
    script: str
    started: float
    """Unix seconds."""
    status: JobStatus
