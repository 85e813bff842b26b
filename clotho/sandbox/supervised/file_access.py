"""The files of a sandbox as the host reaches them: by requests, which its supervisor serves with the user's rights.

A waiter is woken when an answer appears in the control directory, or the supervisor's lock goes: it needs neither a
thread nor a poll. Whatever touches files runs in threads.
"""

import asyncio
import errno
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

from clotho.errors import FileRefused, SandboxDisrupted, SandboxLost, SandboxUnavailable, TakenOver
from clotho.sandbox.backend import FileContent
from clotho.sandbox.checkpoints import Manifest
from clotho.sandbox.supervised.interface import FENCE, Control, fence_mark
from clotho.sandbox.supervised.layout import Layout
from clotho.sandbox.supervised.staged import MAX_PATH_BYTES
from clotho.sandbox.supervised.transfers import Transfers
from clotho.sandbox.threads import with_files

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

ANSWER_SECONDS = 60.0
"""Seconds within which a living supervisor takes over a start, an input or a file transfer."""
TRANSFER_TRIES = 3
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


class SupervisedFiles:
    """An instance of a sandbox, and its files."""

    def __init__(self, control: Control, incarnation: str, layout: Layout) -> None:
        self.control = control
        self._transfers = Transfers(control)
        self._incarnation = incarnation
        self._layout = layout
        self._fence = 0

    @property
    def incarnation(self) -> str:
        return self._incarnation

    async def raise_fence(self, number: int) -> None:
        await self._in_thread(self.control.say, "fence", str(number))
        self._fence = number

    def _say(self, *words: str) -> None:
        """Send a request under this instance's fence."""
        self.control.say(*words, *fence_mark(self._fence))

    def _require_obeyed(self, raised: str | None) -> None:
        """Raises TakenOver where `raised`, the fence file's text, is higher: requests from here are ignored."""
        if raised is not None and int(raised) > self._fence:
            raise TakenOver("another process has taken over the work in this sandbox")

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
        except TakenOver:
            word = "taken over"  # the entry under that key is the other process's now
            raise
        finally:
            if word == "ok" and key is not None:  # stays, as what has been applied
                await self._in_thread(self._transfers.forget_content, request)
            elif word != "taken over":
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
        if "/" in agents:  # no link leads out of it
            agents = ()
        return await self._answered(
            key,
            lambda steady: self._transfers.stage(key, seen, after, content, max_bytes, steady, agents),
        )

    async def _answered(self, key: str, stage: Callable[[bool], None]) -> tuple[str, int, str]:
        """Stage a request and wait for its answer; stage it again if commands killed the process that served it.

        Raises SandboxDisrupted if that happens every time, and SandboxUnavailable if the supervisor lacks what this
        host should give it.
        """
        for tries in range(TRANSFER_TRIES):
            # The second try stops the commands meanwhile: without root they are the same user as the helper,
            # and can kill it.
            await self._in_thread(stage, tries > 0)
            await self._in_thread(self._say, "file", key)
            await self._appearance(self._transfers.file(key, "done"))
            answer = await self._in_thread(self._transfers.answer, key)
            if answer is None:
                raise SandboxDisrupted("the answer to a request was taken away")
            if answer[0] == "unavailable" or (answer[0] == "failed" and answer[1] in OF_THE_HOST):
                await self._in_thread(self.control.require_room)
                raise SandboxUnavailable(f"the sandbox's supervisor can't serve a request: {answer[1]}")
            # commands can kill the process that serves a request, and use up the memory that it needs (ENOMEM)
            if answer[0] != "interrupted" and answer != ("failed", errno.ENOMEM, ""):
                return ("inaccessible", *answer[1:]) if answer[0] == "failed" else answer
            await self._in_thread(self._transfers.forget, key)
        raise SandboxDisrupted("requests for files are killed from inside the sandbox")

    async def manifest(self) -> Manifest | None:
        if self.workspace == "/":
            return None
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

    async def _appearance(self, *paths: str) -> None:
        """Wait until there is an entry at one of `paths`. Raises SandboxLost if the supervisor ends before that."""
        changed = asyncio.Event()
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
        # watched before the first look: an answer that comes in between sets the event
        with self.control.watching(changed, *paths) as recheck:
            while True:
                incarnation, (*found, raised) = await self._in_thread(
                    lambda: self.control.look(*paths, FENCE)
                )
                if any(text is not None for text in found):
                    return
                self._require_obeyed(raised)
                # After the answer, which may have been the last that the supervisor did.
                if incarnation != self._incarnation:
                    raise SandboxLost("the sandbox's supervisor is gone")
                if asyncio.get_running_loop().time() > deadline:
                    raise SandboxUnavailable("the sandbox's supervisor doesn't answer: is its disk full?")
                if not await set_within(changed, recheck):
                    await self._in_thread(self.control.require_room)
                changed.clear()


def shown(path: str) -> str:
    """A path for an error's text, shortened to its end: the model knows the beginning."""
    return path if len(path) <= SHOWN_PATH_CHARS else f"…{path[-SHOWN_PATH_CHARS:]}"


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False
