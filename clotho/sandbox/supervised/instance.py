"""A sandbox as the host drives it: jobs, input and checkpoints, through its supervisor's control directory.

A waiter is woken when an entry appears in that directory, or the supervisor's lock goes: it needs neither a thread
nor a poll. Whatever touches files runs in threads.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from clotho.errors import SandboxUnavailable
from clotho.sandbox.backend import (
    MAX_CHECKPOINT_BYTES,
    MAX_CHECKPOINT_SECONDS,
    MAX_OUTPUT_BYTES,
    Job,
    JobState,
    JobStatus,
    SessionInfo,
)
from clotho.sandbox.checkpoints import Checkpoint, NotTaken, Restore
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.supervised.archives import ArchiveTransfer, own_disk_is_full
from clotho.sandbox.supervised.file_access import ANSWER_SECONDS, SupervisedFiles, set_within
from clotho.sandbox.supervised.interface import FENCE, Control
from clotho.sandbox.supervised.jobs import Jobs
from clotho.sandbox.supervised.layout import Layout
from clotho.sandbox.threads import with_archives

UNTOUCHED = frozenset({JobState.ABSENT, JobState.RUNNING, JobState.OUTPUT_LIMIT, JobState.KILLED})
"""States that say nothing of what a command ran out of."""


class SupervisedSandbox(SupervisedFiles):
    """One instance: a supervisor's incarnation, and the paths as commands in it see them."""

    def __init__(self, control: Control, incarnation: str, layout: Layout, bounds: Bounds) -> None:
        super().__init__(control, incarnation, layout)
        self._jobs = Jobs(control, silent=layout.verifying)
        self._bounds = bounds

    # ---- jobs ----

    async def start(self, job: Job) -> None:
        self._layout.require_seen(job.script, "the command")
        if job.workdir is not None:
            job = job.model_copy(update={"workdir": self._layout.seen_path(job.workdir)})
        await self._in_thread(self._start, job)
        if job.session is not None and await self._in_thread(self._is_awaited, job.key):
            await self._appearance(*(self._jobs.file(job.key, name) for name in ("pid", "done")))

    def _start(self, job: Job) -> None:
        if not self._jobs.submit(job, self._bounds.usage(), self._fence):
            # staged before: the attempt that did so may have died before it asked for the start
            self._ask_to_run(job.key)

    def _is_awaited(self, key: str) -> bool:
        return self._jobs.status(key, self._incarnation).state is not JobState.LOST

    def _ask_to_run(self, key: str) -> None:
        """A full disk can keep a supervisor from starting a job, now or when it was first asked."""
        if self._jobs.started(key):
            return
        self._require_obeyed(self.control.text_of(FENCE))
        self.control.require_room()
        self._say("run", key)
        if time.time() - self._jobs.waits_since(key) > ANSWER_SECONDS:
            raise SandboxUnavailable("the sandbox's supervisor doesn't start a command")

    async def wait(self, key: str, timeout: float) -> JobStatus:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        changed = asyncio.Event()
        with self.control.watching(changed, self._jobs.file(key, "done")) as recheck:
            while True:
                # before the look: what is published after it sets the event again
                changed.clear()
                status = await self._in_thread(self._status, key)
                remaining = deadline - loop.time()
                if status.state is not JobState.RUNNING or remaining <= 0:
                    return status
                # An event may be missed, and a request may have met a full disk: both are mended by asking
                # again.
                if not await set_within(changed, min(remaining, recheck)):
                    await self._in_thread(self._ask_to_run, key)

    async def wait_output(self, key: str, size: int, timeout: float) -> JobStatus:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        changed = asyncio.Event()
        done, out = (self._jobs.file(key, name) for name in ("done", "out"))
        with self.control.watching(changed, done) as ending:
            while True:
                changed.clear()
                # Anew each time: a job that hadn't started had no output to watch.
                with self.control.growing(changed, out) as growing:
                    status = await self._in_thread(self._status, key)
                    remaining = deadline - loop.time()
                    if status.state is not JobState.RUNNING or status.output_size > size or remaining <= 0:
                        return status
                    if not await set_within(changed, min(remaining, ending, growing)):
                        await self._in_thread(self._ask_to_run, key)

    def _status(self, key: str) -> JobStatus:
        return self._with_exhausted(key, self._jobs.status(key, self._incarnation))

    def _with_exhausted(self, key: str, status: JobStatus) -> JobStatus:
        if status.state in UNTOUCHED or status.exit_code == 0:
            return status
        before, known = self._jobs.usage_before(key), self._jobs.settled(key)
        if known is None and before is not None:
            # Counters are the sandbox's, and go on with the next command: only now are they of this one.
            known = self._jobs.settle(key, self._bounds.exhausted_since(before, status.exit_code))
        return status.model_copy(update={"exhausted": known or None})

    async def output(self, key: str, offset: int = 0, limit: int = MAX_OUTPUT_BYTES) -> bytes:
        return await self._in_thread(self._jobs.output, key, offset, limit)

    async def kill(self, key: str) -> None:
        await self._in_thread(self._jobs.kill, key, self._fence)

    async def send_input(self, key: str, data: bytes, request: str | None = None) -> None:
        if data:
            await self._send(key, data, request)

    async def close_input(self, key: str) -> None:
        await self._send(key, b"", None)

    async def _send(self, key: str, data: bytes, request: str | None) -> None:
        request = request or secrets.token_hex(16)
        if await self._in_thread(self._jobs.stage_input, key, request, data):
            await self._in_thread(self._say, "input", key, request)
            await self._appearance(*(self._jobs.file(key, name) for name in (f"taken.{request}", "done")))

    async def sessions(self) -> Sequence[SessionInfo]:
        return await self._in_thread(self._sessions)

    def _sessions(self) -> Sequence[SessionInfo]:
        return tuple(
            each.model_copy(update={"status": self._with_exhausted(each.key, each.status)})
            for each in self._jobs.sessions(self._incarnation)
        )

    # ---- checkpoints ----

    async def checkpoint(
        self,
        to: Path,
        *,
        after: str | None = None,
        previous: Checkpoint | None = None,
        max_bytes: int = MAX_CHECKPOINT_BYTES,
        timeout: float = MAX_CHECKPOINT_SECONDS,
    ) -> Checkpoint | NotTaken:
        fields = {"max": str(max_bytes), "timeout_ms": str(round(timeout * 1000))}
        if previous is not None:
            fields["known"] = previous.fingerprint
        return await with_archives(self._name, self._checkpoint, to, after, previous, fields)

    def _checkpoint(
        self, to: Path, after: str | None, previous: Checkpoint | None, fields: Mapping[str, str]
    ) -> Checkpoint | NotTaken:
        shell = self._jobs.shell_state(after, self.workspace) if after else None
        sessions = self._jobs.kept_sessions(self._incarnation)
        packed = self._archive().pack(fields, self._layout.archived, to)
        match packed.word:
            case "too_large" | "too_slow" as reason:
                return NotTaken(reason=reason, size=packed.size)
            case "unchanged" if previous is not None:
                digest, blob_size, content_size = previous.digest, previous.size, previous.content_size
            case "ok":
                digest, blob_size, content_size = packed.digest, packed.blob_size, packed.content_size
            case word:
                raise SandboxUnavailable(f"the sandbox's archive failed: {word} {packed.size}")
        fingerprint, *left = packed.details
        return Checkpoint(
            digest=digest,
            size=blob_size,
            content_size=content_size,
            # What the supervisor counted beside the archive, such as living processes: a restored sandbox
            # lacks that.
            exact=self._layout.isolated and left == ["0", "0", "0"],
            fingerprint=fingerprint,
            shell=shell,
            sessions=sessions,
        )

    def restore(self, restore: Restore, full: Callable[[], Exception] | None = None) -> None:
        """Unpack a checkpoint into a sandbox that no other process knows yet. Blocks.

        Raises SandboxLost for a checkpoint that no sandbox has room for. `full` makes the error of a full disk. By
        default, commands have filled a bounded disk, and another one is the host's.
        """
        own = self._bounds.disk is not None
        self._archive().unpack(restore, self._layout.archived, full or (own_disk_is_full if own else None))
        self._jobs.stage_restored(restore.checkpoint, self.workspace)

    def _archive(self) -> ArchiveTransfer:
        return ArchiveTransfer(self.control, self._incarnation, secrets.token_hex(16))

    async def applied(self) -> frozenset[str]:
        return await self._in_thread(
            lambda: frozenset((*self._jobs.started_keys(), *self._transfers.written_keys()))
        )

    # ---- the instance ----

    async def renew(self, seconds: float) -> None:
        await self._in_thread(self.control.renew, seconds)
