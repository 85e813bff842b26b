"""Tools of MCP servers on the host: good and bad servers, lost answers, changed schemas, secrets."""

import asyncio
import errno
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clotho.errors import HostUnavailable, ServiceRejected, ServiceUnavailable
from clotho.plugin_settings import sections_of
from clotho.plugins.mcp.servers import McpServers
from clotho.plugins.mcp.settings import McpServer, McpSettings
from clotho.plugins.mcp.tool import McpTool, tools_of
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.tool import CallContext, Dispatched, ToolOutcome, ToolSettings

SERVER = Path(__file__).parent / "mcp_server.py"
VARIABLES = {"PATH": "/usr/bin:/bin", "NOTES_TOKEN": "s3cret-token", "EMPTY": ""}
UNKNOWN = "Whether the call had its effect is unknown"


@dataclass
class Notes:
    """The tools of a server, offered to one rollout."""

    folder: Path
    servers: McpServers
    server: McpServer
    tools: dict[str, McpTool] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    parts: dict[str, ToolOutcome] = field(default_factory=dict)
    calls: int = 0

    async def offer(self) -> "Notes":
        self.tools = {tool.name: tool for tool in await tools_of("notes", self.server, self.servers)}
        return self

    async def call(self, name: str, text: str = "", call: str | None = None) -> Dispatched:
        """A call by the model; one with the `call` of an earlier one is another attempt at it."""
        self.calls += 1
        place = call or f"0-{self.calls}"

        async def claim() -> bool:
            first = place not in self.claimed
            self.claimed.add(place)
            return first

        async def once(part: str, work: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
            if (key := f"{place} {part}") not in self.parts:
                self.parts[key] = await work()
            return self.parts[key]

        context = CallContext(
            rollout="run/g0/r0",
            call=("call", place),
            tool_call_id="call_1",
            settings=ToolSettings(plugins=sections_of(McpSettings(servers={"notes": self.server}))),
            state={},
            instance=None,
            claim=claim,
            once=once,
        )
        dispatcher = Dispatcher(Registry(self.tools.values()), VARIABLES.get)
        return await dispatcher.run(name, json.dumps({"text": text}), list(self.tools), context)

    def left(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
async def servers() -> AsyncIterator[McpServers]:
    made = McpServers(VARIABLES.get)
    yield made
    await made.close()


@pytest.fixture
def described(tmp_path: Path, servers: McpServers) -> Any:
    def describe(*how: str, **settings: Any) -> Notes:
        server = McpServer(
            command=(sys.executable, "-S", str(SERVER), str(tmp_path), *how), where="host", **settings
        )
        return Notes(tmp_path, servers, server)

    return describe


def result(done: Dispatched) -> str:
    found: str = json.loads(done.content)["result"]
    return found


async def test_a_conversation_is_kept_between_the_calls_of_a_rollout(described: Any) -> None:
    notes = await described().offer()
    assert list(notes.tools) == ["mcp_notes_add_note", "mcp_notes_look_up", "mcp_notes_misbehave"]
    assert [result(await notes.call("mcp_notes_add_note", text)) for text in ("a", "b")] == [
        "1 notes",
        "2 notes",
    ]
    assert len(notes.left("starts")) == 2  # one to list its tools


async def test_the_server_sees_only_what_it_is_given(described: Any) -> None:
    notes = await described(env={"MODE": "quiet"}, secrets={"TOKEN": "NOTES_TOKEN"}).offer()
    assert result(await notes.call("mcp_notes_look_up", "MODE")) == "quiet"
    assert result(await notes.call("mcp_notes_look_up", "TOKEN")) == "[REDACTED]"
    assert result(await notes.call("mcp_notes_look_up", "NOTES_TOKEN")) == "not set"


@pytest.mark.parametrize("variable", ["UNSET_TOKEN", "EMPTY"])
async def test_a_secret_that_is_missing_is_named(described: Any, variable: str) -> None:
    with pytest.raises(ServiceRejected, match=variable):
        await described(secrets={"TOKEN": variable}).offer()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "no such thing"),
        ("refuse", "it can't be done"),
        ("not MCP", "its answer is invalid"),
        ("exit", f"it ended with exit code 7. {UNKNOWN}"),
        ("long line", f"it sent a message of more than 8,388,608 bytes. {UNKNOWN}"),
        ("flood", f"it sent more than 16,777,216 bytes at one call. {UNKNOWN}"),
    ],
)
async def test_a_call_that_fails_is_told_to_the_model_and_made_once(
    described: Any, how: str, said: str
) -> None:
    notes = await described().offer()
    done = await notes.call("mcp_notes_misbehave", how)
    assert done.failure is not None and said in json.loads(done.content)["error"]
    assert notes.left("calls") == [f"misbehave {how}"]
    assert result(await notes.call("mcp_notes_add_note", "after")) == "1 notes"


async def test_a_call_that_hangs_is_given_up(described: Any) -> None:
    notes = await described(seconds=0.5).offer()
    done = await notes.call("mcp_notes_misbehave", "hang")
    assert f"it gave no answer within 0.5 s. {UNKNOWN}" in done.content
    assert len(notes.left("calls")) <= 1


async def test_lines_of_logs_and_notifications_are_passed_over(described: Any) -> None:
    notes = await described().offer()
    assert result(await notes.call("mcp_notes_misbehave", "noise")) == "done"


async def test_a_large_result_is_cut_to_the_budget(described: Any) -> None:
    notes = await described().offer()
    done = await notes.call("mcp_notes_misbehave", "large")
    assert done.content.startswith("<persisted-output>") and len(done.content) < 10_000


async def test_a_second_attempt_never_repeats_a_call(described: Any) -> None:
    notes = await described().offer()
    await notes.call("mcp_notes_add_note", "once", call="0-0")
    done = await notes.call("mcp_notes_add_note", "once", call="0-0")
    assert "wasn't made again" in done.content
    assert notes.left("calls") == ["add_note once"]


async def test_an_idempotent_call_is_made_again(described: Any) -> None:
    notes = await described(idempotent=("misbehave",)).offer()
    done = await notes.call("mcp_notes_misbehave", "exit")
    assert UNKNOWN in done.content
    assert notes.left("calls") == ["misbehave exit"] * 2


async def test_a_server_that_died_between_two_calls_is_started_again(described: Any) -> None:
    notes = await described().offer()
    await notes.call("mcp_notes_add_note", "a")
    await notes.servers.close()
    assert result(await notes.call("mcp_notes_add_note", "b")) == "1 notes"


async def test_a_server_that_changed_its_tools_fails_the_call(described: Any) -> None:
    notes = await described("changes").offer()
    with pytest.raises(ServiceRejected, match="changed its tool add_note since the group began"):
        await notes.call("mcp_notes_add_note", "a")
    assert notes.left("calls") == []


@pytest.mark.parametrize(
    ("how", "said"),
    [("exits", "exit code 1: this server is broken"), ("nonsense", "it ended with exit code 0")],
)
async def test_a_server_that_ends_at_once_is_rejected(described: Any, how: str, said: str) -> None:
    with pytest.raises(ServiceRejected, match=said):
        await described(how).offer()


@pytest.mark.parametrize("value", ["s3cret-token", "Bearer s3cret-token"])
async def test_what_a_server_says_of_its_secret_is_not_told(tmp_path: Path, value: str) -> None:
    """Even where the words that are kept begin within it."""
    command = (sys.executable, "-S", str(SERVER), str(tmp_path), "tells")
    server = McpServer(command=command, where="host", secrets={"TOKEN": "NOTES_TOKEN"})
    with pytest.raises(ServiceRejected, match="ended with exit code 1") as raised:
        await McpServers({**VARIABLES, "NOTES_TOKEN": value}.get).definitions("notes", server)
    assert "token" not in str(raised.value)


async def test_a_server_that_the_host_kills_at_its_start_is_an_outage(described: Any) -> None:
    with pytest.raises(ServiceUnavailable, match="exit code -9"):
        await described("killed").offer()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM])
async def test_a_host_without_room_for_a_server_is_an_outage(
    described: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def full(*command: str, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", full)
    with pytest.raises(HostUnavailable, match=os.strerror(number)):
        await described().offer()


async def test_a_server_that_hangs_at_its_start_is_an_outage(described: Any) -> None:
    with pytest.raises(ServiceUnavailable, match="it hasn't listed its tools"):
        await described("hangs", start_seconds=0.5).offer()


async def test_a_program_that_isnt_there_is_rejected(servers: McpServers) -> None:
    with pytest.raises(ServiceRejected, match="nowhere"):
        await tools_of("notes", McpServer(command=("/nowhere/server",), where="host"), servers)


async def test_a_cancelled_call_leaves_no_process(described: Any) -> None:
    notes = await described().offer()
    call = asyncio.create_task(notes.call("mcp_notes_misbehave", "hang"))
    while not notes.left("calls"):
        await asyncio.sleep(0.02)
    call.cancel()
    await asyncio.wait({call})
    await notes.servers.close()
    assert call.cancelled()


def test_settings_name_a_command_or_a_url() -> None:
    for wrong in ({}, {"command": ("a",), "url": "http://a"}, {"url": "http://a", "env": {"A": "b"}}):
        with pytest.raises(ValueError, match=r"command or a url|env is for a command"):
            McpServer.model_validate(wrong)
