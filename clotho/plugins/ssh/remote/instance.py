"""One instance on another machine."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from clotho.errors import FileRefused, SandboxLost
from clotho.plugins.ssh.remote.calls import (
    InstanceDescription,
    RemoteAnswer,
    RemoteCall,
    Verb,
    forwarded,
    hints_of,
    result_of,
)
from clotho.plugins.ssh.remote.link import MAX_WRITTEN_BYTES
from clotho.sandbox.backend import SandboxInstance
from clotho.sandbox.supervised.file_access import shown
from clotho.sandbox.supervised.layout import Layout

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

    start = forwarded(SandboxInstance.start)
    wait = forwarded(SandboxInstance.wait)
    wait_output = forwarded(SandboxInstance.wait_output)
    output = forwarded(SandboxInstance.output)
    kill = forwarded(SandboxInstance.kill)
    send_input = forwarded(SandboxInstance.send_input)
    close_input = forwarded(SandboxInstance.close_input)
    sessions = forwarded(SandboxInstance.sessions)
    read_file = forwarded(SandboxInstance.read_file)
    renew = forwarded(SandboxInstance.renew)
    checkpoint = forwarded(SandboxInstance.checkpoint)
    manifest = forwarded(SandboxInstance.manifest)
    applied = forwarded(SandboxInstance.applied)

    async def raise_fence(self, number: int) -> None:
        await self.forward(SandboxInstance.raise_fence, {"number": number})
        self._fence = number

    async def write_file(
        self, path: str, content: bytes, after: str | None = None, key: str | None = None
    ) -> str:
        if len(content) > MAX_WRITTEN_BYTES:
            raise FileRefused(f"{shown(path)}: {len(content)} bytes are more than can be sent to its host")
        asked = {"path": path, "content": content, "after": after, "key": key}
        written: str = await self.forward(SandboxInstance.write_file, asked)
        return written

    async def forward(self, declared: Verb[..., Any], arguments: dict[str, Any]) -> Any:
        """Ask the server; a checkpoint's blob comes beside the answer, to a file of this machine."""
        verb, to = declared.__name__, arguments.pop("to", None)
        answer = await self._asked(verb, to, arguments)
        if answer.unknown_instance:
            # once: a handle that was just made is gone only where the server has ended again, which is an outage
            await self._find_again()
            answer = await self._asked(verb, to, arguments)
        return result_of(answer, hints_of(declared)["return"])

    async def _asked(self, verb: str, to: Path | None, arguments: dict[str, Any]) -> RemoteAnswer:
        call = RemoteCall(instance=self._description.handle, verb=verb, arguments=arguments)
        return await self._ask(call, to)

    async def _find_again(self) -> None:
        found = await self._find()
        if found.incarnation != self._description.incarnation:
            raise SandboxLost("the sandbox has ended; another is in its place")
        self._description = found
        if self._fence:  # held by the instance that the server has dropped
            result_of(await self._asked("raise_fence", None, {"number": self._fence}), type(None))
