"""The file that stages a job: a header of lines `name value`, an empty line, and the command's text."""

import hashlib
import json
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.sandbox.backend import Job
from clotho.sandbox.checkpoints import KeptSession, ShellState

GRACE_MS = 2_000
RESTORED = b"restored\n"
MAX_PATH_BYTES = 4095
"""Bytes of a path that the kernel takes."""
NEVER = "-"
"""Identity of a key that holds no command here."""


def identity_of(job: Job) -> str:
    """The fields that identify the command: not its limits, which may change between attempts."""
    stdin = None if job.stdin is None else hashlib.sha256(job.stdin).hexdigest()
    # Only what makes it another command: a later attempt may have less time left, and must find the same job.
    parts = [job.script, job.after, job.workdir, stdin, job.session, job.pty]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def header_of(job: Job, silent: bool = False) -> bytes:
    """The header of a job. If `silent`, its output doesn't mention a directory that is gone."""
    if "\0" in job.script:
        raise InvalidInput("a command can't hold a NUL character")
    if any(c in (job.workdir or "") + (job.session or "") for c in "\0\n"):
        raise InvalidInput("a working directory or session name can't hold a NUL or a line break")
    if len((job.workdir or "").encode()) > MAX_PATH_BYTES:
        raise InvalidInput("the name of the working directory is too long")
    kind = "pty" if job.pty else "file" if job.stdin is not None else "pipe" if job.session else "none"
    fields = {
        "identity": identity_of(job),
        "input": kind,
        "max_output": job.max_output,
        "grace_ms": GRACE_MS,
        "timeout_ms": None if job.timeout is None else max(1, round(job.timeout * 1000)),
        "after": job.after,
        "workdir": job.workdir,
        "session": job.session,
        "background": 1 if job.session else None,
        "silent": 1 if silent else None,
    }
    lines = "".join(f"{name} {value}\n" for name, value in fields.items() if value is not None)
    return f"{lines}\n".encode()


def split(content: bytes) -> tuple[dict[str, str], bytes]:
    header, _, body = content.partition(b"\n\n")
    fields = (line.partition(" ") for line in header.decode(errors="replace").splitlines())
    return {name: value for name, _, value in fields}, body


def restored_session(session: KeptSession) -> dict[str, bytes]:
    """Files of a background job from a checkpoint. A job that ran then gets no result: its state is LOST."""
    header = f"identity {session.identity}\nsession {session.session}\n\n"
    entries = {"job": header.encode() + session.script.encode(), "started": RESTORED}
    if session.exit_code is not None:
        entries["done"] = f"{session.state} {session.exit_code} 0\n".encode()
    return entries


def restored_shell(shell: ShellState, workspace: str) -> dict[str, bytes]:
    """Files of the job that left a restored shell state: its state alone, no command and no result."""
    return {"job": f"identity {NEVER}\n\n".encode(), "started": RESTORED, **moved(shell, workspace)}


def moved(shell: ShellState, workspace: str) -> dict[str, bytes]:
    """The shell state with the workspace's new path, where commands see the host's own paths."""
    cwd, exports = shell.cwd, shell.exports
    if shell.workspace != workspace:
        # the parents: home and /tmp lie beside the workspace, and the shell's variables may name them, too
        old, new = (str(Path(path).parent) for path in (shell.workspace, workspace))
        cwd, exports = cwd.replace(old, new), exports.replace(old, new)
    return {"cwd": cwd.encode("latin-1"), "state": exports.encode("latin-1")}
