"""The jobs of a supervisor's control directory, and what they left."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Literal, cast, get_args

from clotho.errors import CommandConflict, SandboxDisrupted, SandboxLost
from clotho.sandbox.backend import Job, JobState, JobStatus, SessionInfo
from clotho.sandbox.checkpoints import Checkpoint, KeptSession, ShellState
from clotho.sandbox.exhaustion import Exhausted, Usage
from clotho.sandbox.supervised.files import damaged
from clotho.sandbox.supervised.interface import JOBS, SESSIONS, Control, fence_mark
from clotho.sandbox.supervised.staged import (
    NEVER,
    header_of,
    identity_of,
    restored_session,
    restored_shell,
    split,
)

MOST_SESSIONS_KEPT = 64
"""In a checkpoint, so that a rollout's don't grow with every background job: as many as can run at once."""
STATE_BYTES = 4 << 20
"""Bound on a shell's exports, as the supervisor keeps them."""
JOB_BYTES = 64 << 20
"""Bound on a job as it was staged."""
OPEN_TRIES = 10
RESULT = re.compile(
    r"(?P<state>exited|timeout|output_limit|killed|lost) (?P<code>\d{1,3}) (?P<size>\d{1,19})\n", re.ASCII
)
PID = re.compile(r"\d{1,9}\n?", re.ASCII)


class Jobs:
    """One entry for each key, which holds one command for ever."""

    def __init__(self, control: Control, silent: bool = False) -> None:
        self._control = control
        self._silent = silent

    def file(self, key: str, name: str) -> str:
        return f"{JOBS}/{key}/{name}"

    def _known(self, key: str) -> bool:
        return self._control.exists(f"{JOBS}/{key}")

    def started_keys(self) -> list[str]:
        return list(filter(self.started, self._control.keys(JOBS)))

    def submit(self, job: Job, usage: Usage, fence: int = 0) -> bool:
        """Ask for the start of a job that is new here, and return whether it is.

        `usage` is of the sandbox before the job. Raises CommandConflict where the key holds another command,
        InvalidInput for what no shell could run, SandboxLost where the sandbox is sealed.
        """
        identity, header = identity_of(job), header_of(job, self._silent)
        entries = {"job": header + job.script.encode(), "usage": str(usage).encode()}
        if job.stdin is not None:
            entries["stdin"] = job.stdin
        new = self._control.submit(job.key, entries, fence)
        if not new and self._identity(job.key) not in (identity, NEVER):
            raise CommandConflict(f"job {job.key} already holds another command")
        # also for a key that is known: its first attempt may have died before it was listed
        if job.session is not None:
            self._list_session(job.key)
        return new

    def kill(self, key: str, fence: int = 0) -> None:
        """End a job. A key without a command is taken, so that no command can start under it."""
        never = {"job": f"identity {NEVER}\n\n".encode(), "started": b"0\n", "done": b"killed 137 0\n"}
        if self._known(key) or not self._stage(key, never):
            self._control.say("kill", key, *fence_mark(fence))

    def status(self, key: str, incarnation: str) -> JobStatus:
        """Raises SandboxLost for a job that never started in a sandbox that is gone."""
        # liveness before files: all that a supervisor published before its death is seen, so that LOST is final
        found, (started, done, pid) = self._control.look(
            *(self.file(key, name) for name in ("started", "done", "pid"))
        )  # `done` after `started`: a result published meanwhile is seen
        alive = found == incarnation
        if done is not None:
            return self._ended(key, done, pid)
        if started is not None:
            now = JobState.RUNNING if alive and started.strip() == incarnation else JobState.LOST
            so_far = self._control.size_of(self.file(key, "out"))
            return JobStatus(state=now, exit_code=None, output_size=so_far, pid=self._pid(key, pid))
        if not alive:
            raise SandboxLost("the sandbox is gone; that command never started in it")
        staged = JobState.RUNNING if self._known(key) else JobState.ABSENT
        return JobStatus(state=staged, exit_code=None, output_size=0)

    def _ended(self, key: str, done: str, pid: str | None = None) -> JobStatus:
        """Raises SandboxLost for a damaged result: nobody can tell any more how the job ended."""
        if (found := RESULT.fullmatch(done)) is None:
            raise damaged(self.file(key, "done"))
        return JobStatus(
            state=JobState(found["state"]),
            exit_code=int(found["code"]),
            output_size=int(found["size"]),
            pid=self._pid(key, pid),
        )

    def waits_since(self, key: str) -> float:
        """Unix seconds at which a job was staged."""
        return self._control.changed(f"{JOBS}/{key}")

    def usage_before(self, key: str) -> Usage | None:
        file = self.file(key, "usage")
        text = self._control.text_of(file)
        try:
            return None if text is None else Usage.parse(text)
        except ValueError:
            raise damaged(file) from None

    def settle(self, key: str, exhausted: Exhausted | None) -> Exhausted | None:
        """The resource that an ended job used up. The first reader records it, since the counters go on."""
        self._control.publish(self.file(key, "exhausted"), (exhausted or "").encode())
        return self.settled(key) or None

    def settled(self, key: str) -> Exhausted | Literal[""] | None:
        """What `settle` has recorded; None before that."""
        file = self.file(key, "exhausted")
        text = self._control.text_of(file)
        if text not in (None, "", *get_args(Exhausted)):
            raise damaged(file)
        return cast(Exhausted | Literal[""] | None, text)

    def started(self, key: str) -> bool:
        return self._control.exists(self.file(key, "started"))

    def output(self, key: str, offset: int, limit: int) -> bytes:
        """At most what the supervisor measured at the end: processes that a command left may go on writing."""
        done = self._control.text_of(self.file(key, "done"))
        offset = max(0, offset)
        if done is not None:
            limit = min(limit, self._ended(key, done).output_size - offset)
        file = self.file(key, "out")
        for _ in range(OPEN_TRIES):
            try:
                return self._control.start_of(file, limit, offset)
            except FileNotFoundError:
                return b""
            except PermissionError:  # a command took our rights to it, where we are the same user
                self._control.make_readable(file)
        raise SandboxDisrupted("commands keep the output of a command from being read")

    def stage_input(self, key: str, request: str, content: bytes) -> bool:
        """Returns False where the supervisor has taken that request before."""
        if self._control.exists(self.file(key, f"taken.{request}")):
            return False
        # should another attempt's be taken just now, the supervisor ignores this one: it knows the request
        self._control.place(self.file(key, f"in.{request}"), content)
        return True

    def sessions(self, incarnation: str) -> Iterator[SessionInfo]:
        for key in self._control.keys(SESSIONS):
            with suppress(FileNotFoundError):  # staged, and not started yet
                header, script = split(self._control.start_of(self.file(key, "job"), JOB_BYTES))
                started = self._control.changed(self.file(key, "started"))
                yield SessionInfo(
                    key=key,
                    session=header.get("session", ""),
                    script=script.decode(errors="replace"),
                    started=started,
                    status=self.status(key, incarnation),
                )

    def kept_sessions(self, incarnation: str) -> tuple[KeptSession, ...]:
        """The sessions that a checkpoint keeps: all that run, and the latest of the others."""
        found = sorted(
            self.sessions(incarnation), key=lambda one: (one.status.state is JobState.RUNNING, one.started)
        )
        return tuple(
            KeptSession(
                key=each.key,
                identity=self._identity(each.key),
                session=each.session,
                script=each.script,
                started=each.started,
                state=each.status.state,
                exit_code=each.status.exit_code,
            )
            for each in found[-MOST_SESSIONS_KEPT:]
        )

    def shell_state(self, key: str, workspace: str) -> ShellState | None:
        """The shell state that job `key` left; None if it left none."""
        try:
            cwd, exports = (
                self._control.start_of(self.file(key, name), STATE_BYTES) for name in ("cwd", "state")
            )
        except FileNotFoundError:
            return None
        return ShellState(
            job=key, cwd=cwd.decode("latin-1"), exports=exports.decode("latin-1"), workspace=workspace
        )

    def stage_shell(self, shell: ShellState, workspace: str) -> None:
        """Leave a shell's state under a key, unless there is one."""
        self._stage(shell.job, restored_shell(shell, workspace))

    def stage_restored(self, checkpoint: Checkpoint, workspace: str) -> None:
        if checkpoint.shell is not None:
            self.stage_shell(checkpoint.shell, workspace)
        for session in checkpoint.sessions:
            self._stage(session.key, restored_session(session))
            self._control.touch(self.file(session.key, "started"), session.started)
            self._list_session(session.key)

    def _stage(self, key: str, entries: Mapping[str, bytes]) -> bool:
        return self._control.stage(JOBS, key, entries)

    def _list_session(self, key: str) -> None:
        self._control.touch(f"{SESSIONS}/{key}")

    def _identity(self, key: str) -> str:
        file = self.file(key, "job")
        try:
            header, _ = split(self._control.start_of(file, JOB_BYTES))
            return header["identity"]
        except (FileNotFoundError, KeyError):
            raise damaged(file) from None

    def _pid(self, key: str, text: str | None) -> int | None:
        if text and not PID.fullmatch(text):
            raise damaged(self.file(key, "pid"))
        return int(text) if text else None
