"""The conversations of one process with its rollouts' servers: begun by a call, ended when idle."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from clotho.errors import ServiceRejected, ServiceUnavailable
from clotho.tools.mcp.child import Child
from clotho.tools.mcp.client import ClientConversation, Transport
from clotho.tools.mcp.service import Service
from clotho.tools.mcp.session import Definition, NotStarted, Session
from clotho.tools.mcp.settings import McpServer

IDLE_SECONDS = 600.0
SWEEP_SECONDS = 30.0
MOST_SESSIONS = 256
INHERITED = ("PATH", "HOME", "LANG")
EXTRA = "the `mcp` package is missing: pip install 'clotho-rollouts[mcp]'"


@dataclass
class _Held:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a call is made: a rollout talks to a server in one conversation."""
    session: Session | None = None
    used: float = 0.0


class McpServers:
    """Conversations by rollout and server; `variable` reads an environment variable of this process."""

    def __init__(self, variable: Callable[[str], str | None]) -> None:
        self._variable = variable
        self._held: dict[tuple[str, str], _Held] = {}
        self._sweeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def session(self, rollout: str, name: str, server: McpServer) -> AsyncIterator[Session]:
        """The rollout's conversation with a server, started anew where it has ended.

        Raises ServiceUnavailable, and ServiceRejected for a server that can't be started at all.
        """
        held = self._held.setdefault((rollout, name), _Held())
        async with held.lock:
            if held.session is None or held.session.ended:
                held.session = None
                await self._end_idle(keep=MOST_SESSIONS - 1)
                held.session = await self._start(name, server)
            try:
                yield held.session
            finally:
                held.used = asyncio.get_running_loop().time()
                if self._sweeper is None or self._sweeper.done():
                    self._sweeper = asyncio.create_task(self._sweep())

    async def definitions(self, name: str, server: McpServer) -> Sequence[Definition]:
        """The tools that a server has now. Raises as `session` does."""
        session = await self._start(name, server)
        await session.close()
        return session.definitions

    async def close(self) -> None:
        """End all conversations."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for key in list(self._held):
            await self._end(key)

    async def _start(self, name: str, server: McpServer) -> Session:
        if missing := missing_package():
            raise ServiceRejected(f"MCP server {name}: {missing}")
        try:
            return await ClientConversation.start(self._transport(name, server), server.start_seconds)
        except NotStarted as error:
            kind = ServiceUnavailable if error.passing else ServiceRejected
            raise kind(f"MCP server {name} can't be used: {error}") from error

    def _transport(self, name: str, server: McpServer) -> Transport:
        secrets = {given: self._secret(name, variable) for given, variable in server.secrets.items()}
        if server.url is not None:
            return Service(server.url, _headers(secrets), server.seconds)
        assert server.command is not None
        inherited = {each: value for each in INHERITED if (value := self._variable(each)) is not None}
        return Child(server.command, {**inherited, **server.env, **secrets})

    def _secret(self, name: str, variable: str) -> str:
        value = (self._variable(variable) or "").strip()
        if not (value and value.isascii() and value.isprintable()):
            raise ServiceRejected(
                f"MCP server {name}: environment variable {variable} is not set, or holds what no secret has"
            )
        return value

    async def _sweep(self) -> None:
        while self._held:
            await asyncio.sleep(SWEEP_SECONDS)
            await self._end_idle(keep=MOST_SESSIONS)

    async def _end_idle(self, keep: int) -> None:
        """End what is idle for long, and beyond `keep` what is idle longest."""
        idle = sorted(
            (key for key, held in self._held.items() if not held.lock.locked()),
            key=lambda key: self._held[key].used,
        )
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        surplus = len(self._held) - keep
        for number, key in enumerate(idle):
            if number < surplus or self._held[key].used < oldest:
                await self._end(key)

    async def _end(self, key: tuple[str, str]) -> None:
        if (held := self._held.pop(key, None)) is not None and held.session is not None:
            await held.session.close()


def missing_package() -> str | None:
    """What is missing for servers to be used, or None."""
    return None if importlib.util.find_spec("mcp") else EXTRA


def _headers(secrets: dict[str, str]) -> dict[str, str]:
    """Headers with secrets: an Authorization that names no scheme is a bearer's token."""
    return {
        name: f"Bearer {value}" if name.lower() == "authorization" and " " not in value else value
        for name, value in secrets.items()
    }
