"""A sandbox as the host drives it: jobs, input and files, through its supervisor's control directory.

Waiting is for entries to appear in that directory, and for the supervisor's lock to go: it takes neither a
thread nor a poll. What touches files runs in threads.
"""

import asyncio
import errno
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from clotho.errors import FileRefused, SandboxLost, SandboxUnavailable
from clotho.sandbox.backend import (
    MAX_CHECKPOINT_BYTES,
    MAX_CHECKPOINT_SECONDS,
    MAX_OUTPUT_BYTES,
    FileContent,
    Job,
    JobState,
    JobStatus,
    SessionInfo,
)
from clotho.sandbox.checkpoints import Checkpoint, Manifest, NotTaken, Restore
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.supervised.archives import ArchiveTransfer
from clotho.sandbox.supervised.interface import Control
from clotho.sandbox.supervised.jobs import Jobs
from clotho.sandbox.supervised.layout import Layout
from clotho.sandbox.supervised.staged import MAX_PATH_BYTES
from clotho.sandbox.supervised.transfers import Transfers
from clotho.sandbox.threads import with_archives, with_files

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

ANSWER_SECONDS = 60.0
"""Seconds within which a living supervisor takes over a start, an input or a file transfer."""
TRANSFER_TRIES = 3
UNTOUCHED = frozenset({JobState.ABSENT, JobState.RUNNING, JobState.OUTPUT_LIMIT, JobState.KILLED})
"""States that say nothing of what a command ran out of."""

READ_ERRORS = frozenset(
    {
        "not_found",
        "is_directory",
        "not_regular",
        "too_large",
        "permission_denied",
        "name_too_long",
        "inaccessible",
        "outside",
    }
)
OF_THE_HOST = frozenset({errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.EUCLEAN})
"""Errors of a transfer that no command and no path brings about."""
SHOWN_PATH_CHARS = 200

log = logging.getLogger("clotho")


class SupervisedSandbox:
    """One instance: a supervisor's incarnation, and the paths as commands in it see them."""

    def __init__(self, control: Control, incarnation: str, layout: Layout, bounds: Bounds) -> None:
        self.control = control
        self._jobs = Jobs(control, silent=layout.verifying)
        self._transfers = Transfers(control)
        self._incarnation = incarnation
        self._layout = layout
        self._bounds = bounds

    @property
    def incarnation(self) -> str:
        return self._incarnation

    @property
    def workspace(self) -> str:
        return self._layout.workspace

    @property
    def home(self) -> str:
        return self._layout.home

    @property
    def hidden_files(self) -> str | None:
        return self._layout.hidden_files

    def is_agents(self, path: str) -> bool:
        return self._layout.is_agents(path)

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def _name(self) -> str:
        return self.control.name

    async def _in_thread(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return await with_files(self._name, function, *arguments)

    # ---- jobs ----

    async def start(self, job: Job) -> None:
        if job.workdir is not None:
            job = job.model_copy(update={"workdir": self._layout.seen_path(job.workdir)})
        await self._in_thread(self._start, job)
        if job.session is not None and await self._in_thread(self._is_awaited, job.key):
            await self._appearance(*(self._jobs.file(job.key, name) for name in ("pid", "done")))

    def _start(self, job: Job) -> None:
        if not self._jobs.submit(job, self._bounds.usage()):
            self._ask_to_run(job.key)

    def _is_awaited(self, key: str) -> bool:
        return self._jobs.status(key, self._incarnation).state is not JobState.LOST

    def _ask_to_run(self, key: str) -> None:
        """A full disk can keep a supervisor from starting a job, now or when it was first asked."""
        if self._jobs.started(key):
            return
        self.control.require_room()
        self.control.say("run", key)
        if time.time() - self._jobs.waits_since(key) > ANSWER_SECONDS:
            raise SandboxUnavailable("the sandbox's supervisor doesn't start a command")

    async def wait(self, key: str, timeout: float) -> JobStatus:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        changed = asyncio.Event()
        with self.control.watching(changed, self._jobs.file(key, "done")) as recheck:
            while True:
                changed.clear()
                status = await self._in_thread(self._status, key)
                remaining = deadline - loop.time()
                if status.state is not JobState.RUNNING or remaining <= 0:
                    return status
                if not await _set_within(changed, min(remaining, recheck)):
                    await self._in_thread(self._ask_to_run, key)

    def _status(self, key: str) -> JobStatus:
        return self._with_exhausted(key, self._jobs.status(key, self._incarnation))

    def _with_exhausted(self, key: str, status: JobStatus) -> JobStatus:
        if status.state in UNTOUCHED or status.exit_code == 0:
            return status
        before, known = self._jobs.usage_before(key), self._jobs.settled(key)
        if known is None and before is not None:
            known = self._jobs.settle(key, self._bounds.exhausted_since(before, status.exit_code))
        return status.model_copy(update={"exhausted": known or None})

    async def output(self, key: str, offset: int = 0, limit: int = MAX_OUTPUT_BYTES) -> bytes:
        return await self._in_thread(self._jobs.output, key, offset, limit)

    async def kill(self, key: str) -> None:
        await self._in_thread(self._jobs.kill, key)

    async def send_input(self, key: str, data: bytes, request: str | None = None) -> None:
        if data:
            await self._send(key, data, request)

    async def close_input(self, key: str) -> None:
        await self._send(key, b"", None)

    async def _send(self, key: str, data: bytes, request: str | None) -> None:
        request = request or secrets.token_hex(16)
        if await self._in_thread(self._jobs.stage_input, key, request, data):
            await self._in_thread(self.control.say, "input", key, request)
            await self._appearance(*(self._jobs.file(key, name) for name in (f"taken.{request}", "done")))

    async def sessions(self) -> Sequence[SessionInfo]:
        return await self._in_thread(self._sessions)

    def _sessions(self) -> Sequence[SessionInfo]:
        return tuple(
            each.model_copy(update={"status": self._with_exhausted(each.key, each.status)})
            for each in self._jobs.sessions(self._incarnation)
        )

    # ---- files ----

    async def read_file(self, path: str, max_bytes: int, after: str | None = None) -> FileContent:
        key = secrets.token_hex(16)
        try:
            word, size, _ = await self._transfer(key, path, after, None, max_bytes)
            if word == "ok":
                content = await self._in_thread(self._transfers.content, key, min(size, max_bytes))
                return FileContent(error=None, size=len(content), content=content)
            if word not in READ_ERRORS:
                await self._in_thread(self.control.require_room)
                raise SandboxUnavailable(f"reading a file of the sandbox: {word} {size}")
            return FileContent.model_validate({"error": word, "size": size})
        finally:
            await self._in_thread(self._transfers.forget, key)

    async def write_file(
        self, path: str, content: bytes, after: str | None = None, key: str | None = None
    ) -> str:
        request = key or secrets.token_hex(16)
        word = ""
        try:
            word, _, resolved = await self._transfer(request, path, after, content, len(content))
        finally:
            if word == "ok" and key is not None:  # stays, as what has been applied
                await self._in_thread(self._transfers.forget_content, request)
            else:
                await self._in_thread(self._transfers.forget, request)
        if word == "ok":
            return resolved
        if word == "no_space":
            await self._in_thread(self.control.require_room)
        raise FileRefused(f"{shown(path)}: {word.replace('_', ' ')}")

    async def _transfer(
        self, key: str, path: str, after: str | None, content: bytes | None, max_bytes: int
    ) -> tuple[str, int, str]:
        if "\0" in path:
            return "not_found", 0, ""
        seen = self._layout.seen_path(path)
        if len(seen.encode(errors="surrogateescape")) > MAX_PATH_BYTES:
            return "name_too_long", 0, ""
        agents = self._layout.agents if self._layout.verifying else ()
        return await self._answered(
            key,
            lambda steady: self._transfers.stage(key, seen, after, content, max_bytes, steady, agents),
        )

    async def _answered(self, key: str, stage: Callable[[bool], None]) -> tuple[str, int, str]:
        """Stage a request and wait for its answer; one that was killed from inside the sandbox is staged again.

        Raises SandboxLost where that happens every time, since commands do it, and SandboxUnavailable where the
        supervisor lacks what this host should give it.
        """
        for tries in range(TRANSFER_TRIES):
            await self._in_thread(stage, tries > 0)
            await self._in_thread(self.control.say, "file", key)
            await self._appearance(self._transfers.file(key, "done"))
            answer = await self._in_thread(self._transfers.answer, key)
            if answer is None:
                raise SandboxLost("the answer to a request was taken away")
            if answer[0] == "unavailable" or (answer[0] == "failed" and answer[1] in OF_THE_HOST):
                await self._in_thread(self.control.require_room)
                raise SandboxUnavailable(f"the sandbox's supervisor can't serve a request: {answer[1]}")
            if answer[0] != "interrupted" and answer != ("failed", errno.ENOMEM, ""):
                return ("inaccessible", *answer[1:]) if answer[0] == "failed" else answer
            await self._in_thread(self._transfers.forget, key)
        raise SandboxLost("requests for files are killed from inside the sandbox")

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
            exact=self._layout.isolated and left == ["0", "0", "0"],
            fingerprint=fingerprint,
            shell=shell,
            sessions=sessions,
        )

    def restore(self, restore: Restore) -> None:
        """Unpack a checkpoint into a sandbox that no other process knows yet. Blocks."""
        self._archive().unpack(restore, self._layout.archived)
        self._jobs.stage_restored(restore.checkpoint, self.workspace)

    def _archive(self) -> ArchiveTransfer:
        return ArchiveTransfer(self.control, self._incarnation, secrets.token_hex(16))

    async def manifest(self) -> Manifest | None:
        key = secrets.token_hex(16)
        try:
            word, size, digest = await self._answered(
                key, lambda steady: self._transfers.stage_manifest(key, self.workspace)
            )
            if word != "ok":
                await self._in_thread(self.control.require_room)
                log.warning("the workspace can't be listed: %s %d", word, size)
                return None
            return Manifest(digest, await self._in_thread(self._transfers.content, key, size))
        finally:
            await self._in_thread(self._transfers.forget, key)

    async def applied(self) -> frozenset[str]:
        return await self._in_thread(
            lambda: frozenset((*self._jobs.started_keys(), *self._transfers.written_keys()))
        )

    # ---- the instance ----

    async def renew(self, seconds: float) -> None:
        await self._in_thread(self.control.renew, seconds)

    async def _appearance(self, *paths: str) -> None:
        """Wait until there is an entry at one of `paths`. Raises SandboxLost where the supervisor ends first."""
        changed = asyncio.Event()
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
        with self.control.watching(changed, *paths) as recheck:
            while True:
                incarnation, found = await self._in_thread(self.control.look, *paths)
                if any(text is not None for text in found):
                    return
                if incarnation != self._incarnation:
                    raise SandboxLost("the sandbox's supervisor is gone")
                if asyncio.get_running_loop().time() > deadline:
                    raise SandboxUnavailable("the sandbox's supervisor doesn't answer: is its disk full?")
                if not await _set_within(changed, recheck):
                    await self._in_thread(self.control.require_room)
                changed.clear()


def shown(path: str) -> str:
    """A path in an error's text: the end tells which, and the model knows the beginning."""
    return path if len(path) <= SHOWN_PATH_CHARS else f"…{path[-SHOWN_PATH_CHARS:]}"


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False
