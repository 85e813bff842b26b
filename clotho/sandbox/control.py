"""The host's side of a supervisor's control directory: what is staged there, and what is read back.

Everything here blocks for the time of a few file operations, and holds no state. The layout is described in
supervisor/supervisor.c. Entries are staged whole, by rename.
"""

import errno
import fcntl
import itertools
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, cast

from clotho.errors import CommandConflict, SandboxLost, SandboxUnavailable
from clotho.sandbox.base import FileContent, Job, JobState, JobStatus, SessionInfo
from clotho.sandbox.checkpoints import Checkpoint, KeptSession, ShellState
from clotho.sandbox.exhaustion import Exhausted, Usage, is_full
from clotho.sandbox.staged import NEVER, header_of, identity_of, restored_session, restored_shell, split

MOST_SESSIONS_KEPT = 64
"""In a checkpoint, so that a rollout's don't grow with every background job: as many as can run at once."""
_staged = itertools.count()


class ControlDirectory:
    """`owner` is the user whom staged entries are given to, None where supervisor and host are the same user."""

    def __init__(self, path: Path, owner: int | None) -> None:
        self.path = path
        self.owner = owner
        self._jobs = path / "c"
        self._transfers = path / "f"

    def create(self) -> None:
        with self._room():
            for folder in (self.path, self.path / "c", self.path / "f", self.path / "sessions"):
                folder.mkdir(mode=0o700, parents=True)
                self._give(folder)

    def job_folder(self, key: str) -> Path:
        return self._jobs / key

    def transfer_folder(self, key: str) -> Path:
        return self._transfers / key

    @property
    def alive_file(self) -> Path:
        return self.path / "alive"

    # ---- the supervisor ----

    def incarnation(self) -> str | None:
        """Id of the supervisor that lives here. Alive is who holds the lock: no process id could tell."""
        try:
            descriptor = os.open(self.alive_file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.read(descriptor, 64).decode().strip()
        else:
            return None
        finally:
            os.close(descriptor)

    def was_started(self) -> bool:
        """Whether a supervisor ever lived here."""
        return _size(self.alive_file) > 0

    def renew(self, seconds: float) -> None:
        """Lease for `seconds` from now; the host's own deadline goes by the time of a file."""
        self.say("lease", str(max(1, round(seconds))))
        self.set_deadline(seconds)

    def set_deadline(self, seconds: float) -> None:
        file, end = self.path / "deadline", time.time() + seconds
        file.touch()
        os.utime(file, (end, end))

    def deadline(self) -> float:
        """Unix seconds."""
        return (self.path / "deadline").stat().st_mtime

    def sealed(self) -> bool:
        return Path(self.path, "sealed").exists()

    def say(self, *words: str) -> None:
        """Send a request. Raises SandboxLost where nobody reads them any more."""
        try:
            queue = os.open(f"{self.path}/q", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT):
                raise SandboxLost("the sandbox's supervisor is gone") from None
            raise
        try:
            os.write(queue, f"{' '.join(words)}\n".encode())
        except BlockingIOError:
            raise SandboxUnavailable("the sandbox's supervisor doesn't take requests") from None
        finally:
            os.close(queue)

    # ---- the disk that the outputs of commands go to, too ----

    def require_room(self) -> None:
        """Raises SandboxLost where commands have filled it: no supervisor could serve them any more."""
        if self._on_disk_of_its_own() and is_full(self.path.parent):
            raise self._without_room()

    @contextmanager
    def _room(self) -> Iterator[None]:
        """For what is written here."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise self._without_room() from error
            raise

    def _without_room(self) -> Exception:
        if self._on_disk_of_its_own():
            return SandboxLost("the sandbox's disk was filled by the output of its commands", "disk")
        return SandboxUnavailable("the disk on which this host has its sandboxes is full")

    def _on_disk_of_its_own(self) -> bool:
        return self.path.parent.is_mount()

    # ---- jobs ----

    def stage_job(self, job: Job, usage: Usage) -> None:
        """`usage` is of the sandbox before the job.

        Raises CommandConflict where the key holds another command, InvalidInput for what no shell could run.
        """
        identity, header = identity_of(job), header_of(job)
        entries = {"job": header + job.script.encode(), "usage": str(usage).encode()}
        if job.stdin is not None:
            entries["stdin"] = job.stdin
        known = self.job_folder(job.key).exists() or not self._stage(self._jobs, job.key, entries)
        if known and self._identity(job.key) not in (identity, NEVER):
            raise CommandConflict(f"job {job.key} already holds another command")
        if job.session is not None:
            self._list_session(job.key)

    def kill(self, key: str) -> None:
        """A key that holds no command yet is taken, so that none can start under it."""
        never = {"job": f"identity {NEVER}\n\n".encode(), "started": b"0\n", "done": b"killed 137 0\n"}
        if self.job_folder(key).exists() or not self._stage(self._jobs, key, never):
            self.say("kill", key)

    def job_status(self, key: str, incarnation: str) -> JobStatus:
        """Raises SandboxLost for a job that never started in a sandbox that is gone."""
        folder = self._jobs / key
        alive = self.incarnation() == incarnation
        started = _text(folder / "started")
        done = _text(folder / "done")  # looked at last: a result published meanwhile is seen
        if done is not None:
            state, code, size = done.split()
            return JobStatus(
                state=JobState(state), exit_code=int(code), output_size=int(size), pid=self._pid(folder)
            )
        if started is not None:
            now = JobState.RUNNING if alive and started.strip() == incarnation else JobState.LOST
            so_far = _size(folder / "out")
            return JobStatus(state=now, exit_code=None, output_size=so_far, pid=self._pid(folder))
        if not alive:
            raise SandboxLost("the sandbox is gone; that command never started in it")
        staged = JobState.RUNNING if folder.exists() else JobState.ABSENT
        return JobStatus(state=staged, exit_code=None, output_size=0)

    def usage_before(self, key: str) -> Usage | None:
        text = _text(self._jobs / key / "usage")
        return None if text is None else Usage.parse(text)

    def settle(self, key: str, exhausted: Exhausted | None) -> Exhausted | None:
        """What a job that has ended had run out of: whoever looks first decides, since counters go on."""
        folder = self._jobs / key
        unfinished = folder / f".exhausted.{os.getpid()}.{next(_staged)}"
        with self._room(), suppress(FileExistsError):
            unfinished.write_text(exhausted or "")
            os.link(unfinished, folder / "exhausted")
        unfinished.unlink()
        return self.settled(key) or None

    def settled(self, key: str) -> Exhausted | Literal[""] | None:
        """None before anybody has looked."""
        return cast(Exhausted | Literal[""] | None, _text(self._jobs / key / "exhausted"))

    def job_started(self, key: str) -> bool:
        return (self._jobs / key / "started").exists()

    def output(self, key: str, offset: int, limit: int | None) -> bytes:
        try:
            with (self._jobs / key / "out").open("rb", buffering=0) as file:
                file.seek(max(0, offset))
                return file.readall() if limit is None else _exactly(file.fileno(), limit)
        except FileNotFoundError:
            return b""

    def stage_input(self, key: str, request: str, content: bytes) -> bool:
        """Returns False where that request has been taken over before."""
        folder = self.job_folder(key)
        if (folder / f"taken.{request}").exists():
            return False
        unfinished = folder / f".in.{request}.{os.getpid()}.{next(_staged)}"
        with self._room():
            self._write(unfinished, content)
            unfinished.rename(folder / f"in.{request}")
        return True

    def sessions(self, incarnation: str) -> Iterator[SessionInfo]:
        for key in _entries(self.path / "sessions"):
            folder = self.job_folder(key)
            header, script = split((folder / "job").read_bytes())
            with suppress(FileNotFoundError):  # staged, and not started yet
                started = (folder / "started").stat().st_mtime
                yield SessionInfo(
                    key=key,
                    session=header["session"],
                    script=script.decode(),
                    started=started,
                    status=self.job_status(key, incarnation),
                )

    # ---- files ----

    def stage_transfer(
        self, key: str, path: str, after: str | None, content: bytes | None, max_bytes: int
    ) -> None:
        verb = "get" if content is None else "put"
        header = f"verb {verb}\nmax {max_bytes}\n" + (f"after {after}\n" if after else "")
        entries = {"request": f"{header}\n{path}".encode()}
        if content is not None:
            entries["content"] = content
        self._stage(self._transfers, key, entries)

    def transfer_answer(self, key: str) -> tuple[str, int, str] | None:
        """("ok" or an error's name, size, resolved path), or None while there is no answer."""
        text = _text(self._transfers / key / "done")
        if text is None:
            return None
        first, _, path = text.partition("\n")
        word, size = first.split()
        return word, int(size), path

    def transfer_content(self, key: str) -> FileContent:
        content = (self._transfers / key / "content").read_bytes()
        return FileContent(error=None, size=len(content), content=content)

    def forget_transfer(self, key: str) -> None:
        shutil.rmtree(self._transfers / key, ignore_errors=True)

    def forget_content(self, key: str) -> None:
        (self._transfers / key / "content").unlink(missing_ok=True)

    # ---- checkpoints ----

    def stage_archive(self, key: str, verb: str, fields: Mapping[str, str], roots: Mapping[str, str]) -> None:
        """A request, with the FIFO `stream` that the archive goes through."""
        lines = [f"verb {verb}", *(f"{name} {value}" for name, value in fields.items())]
        lines += [f"root {label} {path}" for label, path in roots.items()]
        self._stage(self._transfers, key, {"request": "\n".join((*lines, "", "")).encode()}, fifo="stream")

    def stage_manifest(self, key: str, workspace: str) -> None:
        request = f"verb manifest\nroot work {workspace}\n\n".encode()
        self._stage(self._transfers, key, {"request": request})

    def applied(self) -> frozenset[str]:
        answers = ((key, self.transfer_answer(key)) for key in _entries(self._transfers))
        writes = (key for key, answer in answers if answer is not None and answer[0] == "ok")
        return frozenset((*filter(self.job_started, _entries(self._jobs)), *writes))

    def kept_sessions(self, incarnation: str) -> tuple[KeptSession, ...]:
        """Those that run, and the latest of the others."""
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
        """What job `key` left; None where it left nothing."""
        try:
            cwd, exports = ((self._jobs / key / name).read_bytes() for name in ("cwd", "state"))
        except FileNotFoundError:
            return None
        return ShellState(
            job=key, cwd=cwd.decode("latin-1"), exports=exports.decode("latin-1"), workspace=workspace
        )

    def stage_restored(self, checkpoint: Checkpoint, workspace: str) -> None:
        if checkpoint.shell is not None:
            self._stage(self._jobs, checkpoint.shell.job, restored_shell(checkpoint.shell, workspace))
        for session in checkpoint.sessions:
            self._stage(self._jobs, session.key, restored_session(session))
            os.utime(self._jobs / session.key / "started", (session.started, session.started))
            self._list_session(session.key)

    # ---- staging ----

    def _list_session(self, key: str) -> None:
        with self._room():
            (self.path / "sessions" / key).touch()

    def _stage(self, parent: Path, key: str, entries: Mapping[str, bytes], fifo: str | None = None) -> bool:
        """Returns False where `key` was staged before."""
        unfinished = parent / f".{key}.{os.getpid()}.{next(_staged)}"
        with self._room():
            try:
                unfinished.mkdir(0o700)
                for name, content in entries.items():
                    self._write(unfinished / name, content)
                if fifo is not None:
                    os.mkfifo(unfinished / fifo, 0o600)
                    self._give(unfinished / fifo)
                self._give(unfinished)
                unfinished.rename(parent / key)
            except FileNotFoundError:
                raise SandboxLost("the sandbox was destroyed") from None
            except OSError as error:
                shutil.rmtree(unfinished, ignore_errors=True)
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return False
                raise
        return True

    def _write(self, path: Path, content: bytes) -> None:
        with path.open("xb", buffering=0) as file:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[file.write(remaining) :]
            if self.owner is not None:
                os.fchown(file.fileno(), self.owner, self.owner)

    def _give(self, path: Path) -> None:
        if self.owner is not None:
            os.chown(path, self.owner, self.owner)

    def _identity(self, key: str) -> str:
        header, _ = split((self._jobs / key / "job").read_bytes())
        return header["identity"]

    def _pid(self, folder: Path) -> int | None:
        text = _text(folder / "pid")
        return int(text) if text else None


def _entries(folder: Path) -> list[str]:
    """Names that aren't being staged, sorted. Raises SandboxLost."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        raise SandboxLost("the sandbox was destroyed") from None


def _text(path: Path) -> str | None:
    try:
        with path.open("rb", buffering=0) as file:
            return file.readall().decode()
    except FileNotFoundError:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _exactly(descriptor: int, limit: int) -> bytes:
    parts: list[bytes] = []
    while limit > 0 and (part := os.read(descriptor, min(limit, 1 << 20))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)
