"""The conversations of one process with its rollouts' servers, and all that ends them.

A conversation with a program on this host, or with a service, begins with a call (`McpServers.session`). It ends:

- after IDLE_SECONDS without a call, as it does after its rollout's end (`McpServers._sweep`);
- when more than MOST_SESSIONS are open: the one that was idle longest (`McpServers._end_idle`);
- when a call gets no answer in time, or one beyond the bounds (`McpTool.run`): the next call begins another;
- when the server doesn't list its tools in time (`ClientConversation.start`);
- once its tools were read for a new group (`McpServers.definitions`);
- when the worker stops (`McpServers.close`, by `Host.close`); if it is killed, the kernel ends its programs;
- by the server itself (`ClientConversation.ended`): the next call begins another.

A server in a sandbox is a job there (`SandboxedServer`), and outlives the worker. It ends:

- with its sandbox: released at the rollout's end, or lost;
- when it gives no answer in time, breaks the protocol or sends too much (`SandboxedServer.call`, `start`);
- with all processes of the agent before verification, unless `keep_services` is set;
- by the agent's commands, or by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from clotho.errors import ServiceRejected, ServiceUnavailable
from clotho.plugins.mcp.child import Child
from clotho.plugins.mcp.client import ClientConversation, Transport
from clotho.plugins.mcp.sandboxed import SandboxedServer
from clotho.plugins.mcp.service import Service
from clotho.plugins.mcp.session import Definition, NotStarted, Session
from clotho.plugins.mcp.settings import McpServer, missing_package
from clotho.tools.source import ProbedSandbox
from clotho.tools.tool import CallContext

IDLE_SECONDS = 600.0
SWEEP_SECONDS = 30.0
MOST_SESSIONS = 256
MOST_REMEMBERED = 1024
INHERITED = ("PATH", "HOME", "LANG")


@dataclass
class _Conversation:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a call is made: a rollout talks to a server in one conversation."""
    session: Session | None = None
    users: int = 0
    """Calls that hold the lock or wait for it."""
    used: float = 0.0


class McpServers:
    """Conversations by rollout and server; `variable` reads an environment variable of this process."""

    def __init__(self, variable: Callable[[str], str | None]) -> None:
        self._variable = variable
        self._conversations: dict[tuple[str, str], _Conversation] = {}
        self._in_sandboxes: dict[tuple[tuple[str | int, ...], str], SandboxedServer] = {}
        self._sweeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def session(self, rollout: str, name: str, server: McpServer) -> AsyncIterator[Session]:
        """The rollout's conversation with a server, started anew where it has ended.

        Raises ServiceUnavailable, HostUnavailable, and ServiceRejected for a server that can't be started at all.
        """
        conversation = self._conversations.setdefault((rollout, name), _Conversation())
        conversation.users += 1
        try:
            async with conversation.lock:
                if conversation.session is None or conversation.session.ended:
                    conversation.session = None
                    await self._end_idle(keep=MOST_SESSIONS - 1)
                    conversation.session = await self._start(name, server)
                try:
                    yield conversation.session
                finally:
                    conversation.used = asyncio.get_running_loop().time()
                    if self._sweeper is None or self._sweeper.done():
                        self._sweeper = asyncio.create_task(self._sweep())
        finally:
            conversation.users -= 1

    def in_sandbox(self, context: CallContext, name: str, server: McpServer) -> SandboxedServer:
        """The server in the sandbox of a call."""
        if context.lease is not None:
            scope: tuple[str | int, ...] = (context.rollout, context.lease)
        else:  # a verifier's: one for each of its sandboxes, which all but a call's number names
            scope = (context.rollout, *context.call[:-1])
        place = (scope, name)
        # the oldest may be in use: what is forgotten is read again from the sandbox
        if place not in self._in_sandboxes and len(self._in_sandboxes) >= MOST_REMEMBERED:
            del self._in_sandboxes[next(iter(self._in_sandboxes))]
        directory = context.settings.terminal_cwd
        return self._in_sandboxes.setdefault(place, SandboxedServer(name, server, scope, directory))

    async def definitions(
        self, name: str, server: McpServer, sandbox: ProbedSandbox | None = None
    ) -> Sequence[Definition]:
        """The tools that a server has now. Raises as `session` does."""
        if server.sandboxed:
            assert sandbox is not None, "a server of sandboxes was asked without one"
            return await self._probe(name, server, sandbox)
        session = await self._start(name, server)
        await session.close()
        return session.definitions

    async def close(self) -> None:
        """End all conversations on this host; those in sandboxes go on."""
        self._in_sandboxes.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for key in list(self._conversations):
            await self._end(key)

    async def _probe(self, name: str, server: McpServer, sandbox: ProbedSandbox) -> Sequence[Definition]:
        _require_package(name)
        probed = SandboxedServer(name, server, sandbox.scope, sandbox.directory)
        try:
            await probed.start(sandbox.instance)
        except NotStarted as error:
            raise _unusable(name, error) from error
        return probed.definitions

    async def _start(self, name: str, server: McpServer) -> Session:
        _require_package(name)
        try:
            return await ClientConversation.start(self._transport(name, server), server.start_seconds)
        except NotStarted as error:
            raise _unusable(name, error) from error

    def _transport(self, name: str, server: McpServer) -> Transport:
        secrets = {given: self._secret(name, variable) for given, variable in server.secrets.items()}
        if server.url is not None:
            return Service(server.url, _headers(secrets))
        assert server.command is not None
        inherited = {each: value for each in INHERITED if (value := self._variable(each)) is not None}
        return Child(server.command, {**inherited, **server.env}, secrets)

    def _secret(self, name: str, variable: str) -> str:
        value = (self._variable(variable) or "").strip()
        # an HTTP client's error about an illegal header would quote the value
        if not (value and value.isascii() and value.isprintable()):
            raise ServiceRejected(
                f"MCP server {name}: environment variable {variable} is not set, or holds what no secret has"
            )
        return value

    async def _sweep(self) -> None:
        while self._conversations:
            await asyncio.sleep(SWEEP_SECONDS)
            await self._end_idle(keep=MOST_SESSIONS)

    async def _end_idle(self, keep: int) -> None:
        """End what is idle for long, and beyond `keep` what is idle longest."""
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        for key, conversation in sorted(self._conversations.items(), key=lambda item: item[1].used):
            # While another was being ended, this one may have been taken, or ended and begun anew.
            if conversation.users or self._conversations.get(key) is not conversation:
                continue
            if len(self._conversations) > keep or conversation.used < oldest:
                await self._end(key)

    async def _end(self, key: tuple[str, str]) -> None:
        if (
            # out of the map first: a call that comes while it closes begins another
            conversation := self._conversations.pop(key, None)
        ) is not None and conversation.session is not None:
            await conversation.session.close()


def _unusable(name: str, error: NotStarted) -> ServiceUnavailable | ServiceRejected:
    said = f"MCP server {name} can't be used: {error}"
    return ServiceUnavailable(said, error.wait) if error.passing else ServiceRejected(said)


def _require_package(name: str) -> None:
    if missing := missing_package():
        raise ServiceRejected(f"MCP server {name}: {missing}")


def _headers(secrets: dict[str, str]) -> dict[str, str]:
    """Headers with secrets: an Authorization that names no scheme is a bearer's token."""
    return {
        name: f"Bearer {value}" if name.lower() == "authorization" and " " not in value else value
        for name, value in secrets.items()
    }
