"""Conversations with MCP servers while others are ended: those in use go on, and none is ended twice."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clotho.plugins.mcp import servers as conversations
from clotho.plugins.mcp.servers import McpServers
from clotho.plugins.mcp.session import Session
from clotho.plugins.mcp.settings import McpServer
from tests.tools.test_mcp import SERVER, VARIABLES


@pytest.fixture
async def servers() -> AsyncIterator[McpServers]:
    made = McpServers(VARIABLES.get)
    yield made
    await made.close()


@pytest.fixture
def settings(tmp_path: Path) -> McpServer:
    return McpServer(command=(sys.executable, "-S", str(SERVER), str(tmp_path)), where="host")


@dataclass
class SlowEnd:
    """A conversation that ends when it is told to."""

    session: Session
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def close(self) -> None:
        self.begun.set()
        await self.may_end.wait()
        await type(self.session).close(self.session)


async def ended_slowly(
    servers: McpServers, settings: McpServer, most: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[SlowEnd, Session]:
    """Idle conversations of the rollouts `a`, which ends slowly, and `b`; from now on `most` are kept."""
    async with servers.session("a", "notes", settings) as session:
        slow = SlowEnd(session)
    monkeypatch.setattr(session, "close", slow.close)
    async with servers.session("b", "notes", settings) as other:
        monkeypatch.setattr(conversations, "MOST_SESSIONS", most)
    return slow, other


async def taken(servers: McpServers, settings: McpServer, rollout: str) -> None:
    async with servers.session(rollout, "notes", settings):
        pass


async def test_a_conversation_that_is_taken_while_another_ends_goes_on(
    servers: McpServers, settings: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = await ended_slowly(servers, settings, 1, monkeypatch)
    third = asyncio.create_task(taken(servers, settings, "c"))
    await slow.begun.wait()
    async with servers.session("b", "notes", settings) as session:
        slow.may_end.set()
        await third
        assert session is other and not session.ended


async def test_idle_conversations_are_ended_from_two_sides(
    servers: McpServers, settings: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = await ended_slowly(servers, settings, 3, monkeypatch)
    third = asyncio.create_task(taken(servers, settings, "c"))
    await slow.begun.wait()
    await taken(servers, settings, "d")
    assert other.ended
    slow.may_end.set()
    await third
    assert slow.session.ended
