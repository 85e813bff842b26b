"""One instance on another machine."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from clotho.errors import FileRefused, SandboxLost, SandboxUnavailable
from clotho.plugins.ssh.remote.calls import InstanceDescription, RemoteAnswer, RemoteCall
from clotho.plugins.ssh.remote.link import MAX_WRITTEN_BYTES
from clotho.sandbox.backend import (
    MAX_CHECKPOINT_BYTES,
    MAX_CHECKPOINT_SECONDS,
    MAX_OUTPUT_BYTES,
    FileContent,
    Job,
    JobStatus,
    SessionInfo,
)
from clotho.sandbox.checkpoints import Checkpoint, Manifest, NotTaken
from clotho.sandbox.supervised.file_access import shown
from clotho.sandbox.supervised.layout import Layout

T = TypeVar("T")

NOTHING: TypeAdapter[None] = TypeAdapter(None)
_BYTES = TypeAdapter(bytes)
_KEYS = TypeAdapter(frozenset[str])
_TEXT = TypeAdapter(str)
_STATUS = TypeAdapter(JobStatus)
_FILE = TypeAdapter(FileContent)
_SESSIONS: TypeAdapter[Sequence[SessionInfo]] = TypeAdapter(Sequence[SessionInfo])
_TAKEN: TypeAdapter[Checkpoint | NotTaken] = TypeAdapter(Checkpoint | NotTaken)
_MANIFEST: TypeAdapter[Manifest | None] = TypeAdapter(Manifest | None)

SendCall = Callable[[RemoteCall, Path | None], Awaitable[RemoteAnswer]]
"""Answers a call, whose file goes to the path. Raises SandboxUnavailable and SandboxLost."""
FindInstance = Callable[[], Awaitable[InstanceDescription]]


class RemoteInstance:
    """`find` finds it again in a server that was started since, or that has dropped its handle.

    Its incarnation begins with `place`, which tells it from those of other machines.
    """

    def __init__(
        self, ask: SendCall, description: InstanceDescription, find: FindInstance, place: str = ""
    ) -> None:
        self._ask = ask
        self._place = place
        self._description = description
        self._find = find
        self._fence = 0

    @property
    def incarnation(self) -> str:
        return self._place + self._description.incarnation

    @property
    def layout(self) -> Layout:
        return self._description.layout

    @property
    def workspace(self) -> str:
        return self.layout.workspace

    @property
    def home(self) -> str:
        return self.layout.home

    @property
    def hidden_files(self) -> str | None:
        return self.layout.hidden_files

    def is_agents(self, path: str) -> bool:
        return self.layout.is_agents(path)

    async def raise_fence(self, number: int) -> None:
        await self._call(NOTHING, "raise_fence", number=number)
        self._fence = number

    async def start(self, job: Job) -> None:
        await self._call(NOTHING, "start", job=job)

    async def wait(self, key: str, timeout: float) -> JobStatus:
        return await self._call(_STATUS, "wait", key=key, timeout=timeout)

    async def output(self, key: str, offset: int = 0, limit: int = MAX_OUTPUT_BYTES) -> bytes:
        return await self._call(_BYTES, "output", key=key, offset=offset, limit=limit)

    async def kill(self, key: str) -> None:
        await self._call(NOTHING, "kill", key=key)

    async def send_input(self, key: str, data: bytes, request: str | None = None) -> None:
        await self._call(NOTHING, "send_input", key=key, data=data, request=request)

    async def close_input(self, key: str) -> None:
        await self._call(NOTHING, "close_input", key=key)

    async def sessions(self) -> Sequence[SessionInfo]:
        return await self._call(_SESSIONS, "sessions")

    async def read_file(self, path: str, max_bytes: int, after: str | None = None) -> FileContent:
        return await self._call(_FILE, "read_file", path=path, max_bytes=max_bytes, after=after)

    async def write_file(
        self, path: str, content: bytes, after: str | None = None, key: str | None = None
    ) -> str:
        if len(content) > MAX_WRITTEN_BYTES:
            raise FileRefused(f"{shown(path)}: {len(content)} bytes are more than can be sent to its host")
        return await self._call(_TEXT, "write_file", path=path, content=content, after=after, key=key)

    async def renew(self, seconds: float) -> None:
        await self._call(NOTHING, "renew", seconds=seconds)

    async def checkpoint(
        self,
        to: Path,
        *,
        after: str | None = None,
        previous: Checkpoint | None = None,
        max_bytes: int = MAX_CHECKPOINT_BYTES,
        timeout: float = MAX_CHECKPOINT_SECONDS,
    ) -> Checkpoint | NotTaken:
        asked = {"after": after, "previous": previous, "max_bytes": max_bytes, "timeout": timeout}
        return await self._call(_TAKEN, "checkpoint", to, **asked)

    async def manifest(self) -> Manifest | None:
        return await self._call(_MANIFEST, "manifest")

    async def applied(self) -> frozenset[str]:
        return await self._call(_KEYS, "applied")

    async def _call(self, returns: TypeAdapter[T], verb: str, to: Path | None = None, **arguments: Any) -> T:
        answer = await self._asked(verb, to, arguments)
        if answer.unknown_instance:
            await self._find_again()
            answer = await self._asked(verb, to, arguments)
        return result_of(answer, returns)

    async def _asked(self, verb: str, to: Path | None, arguments: dict[str, Any]) -> RemoteAnswer:
        call = RemoteCall(instance=self._description.handle, verb=verb, arguments=arguments)
        return await self._ask(call, to)

    async def _find_again(self) -> None:
        found = await self._find()
        if found.incarnation != self._description.incarnation:
            raise SandboxLost("the sandbox has ended; another is in its place")
        self._description = found
        if self._fence:  # held by the instance that the server has dropped
            result_of(await self._asked("raise_fence", None, {"number": self._fence}), NOTHING)


def result_of(answer: RemoteAnswer, returns: TypeAdapter[T]) -> T:
    """The result of a call. Raises its error, and SandboxUnavailable for an answer that isn't one."""
    if answer.error is not None:
        raise answer.error.raised()
    if answer.unknown_instance:
        raise SandboxUnavailable("the sandbox's host doesn't hold the sandbox open")
    try:
        return returns.validate_python(answer.result)
    except ValidationError as error:
        raise SandboxUnavailable(f"the sandbox's host answered something else: {error}") from error
