"""Tools of MCP servers in the sandbox: one start for all calls, none made twice, whatever server and worker do."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import JsonValue

from clotho.errors import SandboxLost, ServiceRejected
from clotho.plugin_settings import sections_of
from clotho.plugins.mcp.servers import McpServers
from clotho.plugins.mcp.settings import McpServer, McpSettings
from clotho.plugins.mcp.tool import McpTool, ServerTool, mcp_tool, tools_of
from clotho.sandbox.backend import JobState, SandboxInstance, SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.tools.code_stubs import function
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.source import ProbedSandbox
from clotho.tools.tool import CallContext, Dispatched, ToolOutcome, ToolSettings
from tests.support import PATIENCE_SECONDS, eventually
from tests.tools.calls import REGISTRY
from tests.tools.test_mcp import UNKNOWN, result

SERVER_FILE = Path(__file__).parent / "mcp_server.py"
SERVER = SERVER_FILE.read_bytes()
LEASE = "mcp/lease/0"
UNSET: dict[str, str] = {}
UNHURRIED = 600.0
"""Seconds in which a slow machine, too, has read all that a server may send."""


def settings(*how: str, seconds: float = UNHURRIED, idempotent: tuple[str, ...] = ()) -> McpServer:
    command = ("python3", "-S", "/work/server.py", "/work", *how)
    return McpServer(
        command=command,
        env={"MODE": "quiet"},
        seconds=seconds,
        start_seconds=UNHURRIED,
        idempotent=idempotent,
    )


@dataclass
class Rollout:
    """Calls of one rollout, and its journal."""

    sandbox: SandboxInstance
    server: McpServer
    servers: McpServers = field(default_factory=lambda: McpServers(UNSET.get))
    tools: dict[str, McpTool] = field(default_factory=dict)
    parts: dict[str, ToolOutcome] = field(default_factory=dict)
    calls: int = 0

    def dispatcher(self) -> Dispatcher:
        return Dispatcher(Registry([*REGISTRY, *self.tools.values()]), UNSET.get)

    async def call(self, name: str, text: str = "", call: str | None = None) -> Dispatched:
        return await self.run(name, call, text=text)

    async def run(self, name: str, call: str | None = None, **arguments: str) -> Dispatched:
        dispatcher = self.dispatcher()
        return await dispatcher.run(name, json.dumps(arguments), dispatcher.names, self.context(call))

    def context(self, call: str | None = None) -> CallContext:
        self.calls += 1
        place = call or f"0-{self.calls}"

        async def once(name: str, work: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
            if (key := f"{place} {name}") not in self.parts:
                self.parts[key] = await work()
            return self.parts[key]

        return CallContext(
            rollout="run/g0/r0",
            call=("call", place),
            tool_call_id="call_1",
            settings=ToolSettings(plugins=sections_of(McpSettings(servers={"notes": self.server}))),
            state={},
            instance=self.sandbox,
            lease=0,
            once=once,
        )

    async def left(self, name: str) -> list[str]:
        return (await self.sandbox.read_file(f"/work/{name}", 100_000)).content.decode().splitlines()

    async def shell(self, command: str) -> str:
        dispatcher = Dispatcher(REGISTRY, UNSET.get)
        done = await dispatcher.run(
            "terminal", json.dumps({"command": command}), REGISTRY.names, self.context()
        )
        return str(json.loads(done.content)["output"])


class SlowToKill:
    """A sandbox whose jobs go on for a moment after they were told to end."""

    def __init__(self, sandbox: SandboxInstance) -> None:
        self._sandbox = sandbox
        self._killing: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    async def kill(self, key: str) -> None:
        async def kill() -> None:
            await asyncio.sleep(0.5)
            await self._sandbox.kill(key)

        self._killing = asyncio.create_task(kill())


@pytest.fixture
async def begin(tool_backend: LocalBackend) -> AsyncIterator[Callable[[McpServer], Awaitable[Rollout]]]:
    async def begun(server: McpServer) -> Rollout:
        sandbox = await tool_backend.create(LEASE, SandboxSpec())
        await sandbox.write_file("/work/server.py", SERVER)
        rollout = Rollout(sandbox, server)
        probed = ProbedSandbox(sandbox, ("run/g0/r0", "tools"), "/work")
        rollout.tools = {tool.name: tool for tool in await tools_of("notes", server, rollout.servers, probed)}
        return rollout

    yield begun
    await tool_backend.destroy(LEASE)


Begin = Callable[[McpServer], Awaitable[Rollout]]


async def test_a_server_keeps_its_state_between_calls_and_workers(begin: Begin) -> None:
    rollout = await begin(settings())
    assert list(rollout.tools) == ["mcp_notes_add_note", "mcp_notes_look_up", "mcp_notes_misbehave"]
    assert result(await rollout.call("mcp_notes_add_note", "a")) == "1 notes"
    await rollout.servers.close()  # as in a new process
    assert result(await rollout.call("mcp_notes_add_note", "b")) == "2 notes"
    assert result(await rollout.call("mcp_notes_look_up", "MODE")) == "quiet"
    assert len(await rollout.left("starts")) == 2  # one to list its tools


async def test_a_second_attempt_finds_the_answer_of_the_first(begin: Begin) -> None:
    rollout = await begin(settings())
    first = await rollout.call("mcp_notes_add_note", "once", call="0-0")
    second = await rollout.call("mcp_notes_add_note", "once", call="0-0")
    assert result(first) == result(second) == "1 notes"
    assert await rollout.left("calls") == ["add_note once"]


async def test_an_attempt_that_was_lost_in_the_call_is_gone_on_with(begin: Begin) -> None:
    rollout = await begin(settings())
    lost = asyncio.create_task(rollout.call("mcp_notes_misbehave", "hang", call="0-0"))

    async def called() -> bool:
        return bool(await rollout.left("calls"))

    await eventually(called, "the call was made")
    lost.cancel()
    await asyncio.wait({lost})
    rollout.server = settings(seconds=1.0)
    done = await rollout.call("mcp_notes_misbehave", "hang", call="0-0")
    assert f"it gave no answer within 1 s. {UNKNOWN}" in done.content
    assert await rollout.left("calls") == ["misbehave hang"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "no such thing"),
        ("refuse", "it can't be done"),
        ("not MCP", "its answer is invalid"),
        ("exit", f"it ended with exit code 7. {UNKNOWN}"),
        ("long line", f"it sent a message of more than 8,388,608 bytes. {UNKNOWN}"),
        ("flood", f"it sent more than 50,000,000 bytes in all. {UNKNOWN}"),
    ],
)
async def test_a_call_that_fails_is_told_to_the_model_and_made_once(
    begin: Begin, how: str, said: str
) -> None:
    rollout = await begin(settings())
    done = await rollout.call("mcp_notes_misbehave", how, call="0-0")
    assert done.failure is not None and said in json.loads(done.content)["error"]
    again = await rollout.call("mcp_notes_misbehave", how, call="0-0")
    assert again.failure is not None
    assert await rollout.left("calls") == [f"misbehave {how}"]
    assert result(await rollout.call("mcp_notes_add_note", "after")) in ("1 notes", "2 notes")


async def test_requests_of_a_server_hold_up_no_call(begin: Begin) -> None:
    rollout = await begin(settings(seconds=1.0))
    async with asyncio.timeout(PATIENCE_SECONDS):
        done = await rollout.call("mcp_notes_misbehave", "pings")
    assert UNKNOWN in done.content
    rollout.server = settings()
    assert result(await rollout.call("mcp_notes_add_note", "after")) == "1 notes"


async def test_a_server_that_takes_long_to_die_is_called_no_more(begin: Begin) -> None:
    rollout = await begin(settings(seconds=1.0))
    rollout.sandbox = cast("SandboxInstance", SlowToKill(rollout.sandbox))
    assert UNKNOWN in (await rollout.call("mcp_notes_misbehave", "hang")).content
    rollout.server = settings()
    assert result(await rollout.call("mcp_notes_add_note", "after")) == "1 notes"


async def test_lines_of_logs_and_notifications_are_passed_over(begin: Begin) -> None:
    rollout = await begin(settings())
    assert result(await rollout.call("mcp_notes_misbehave", "noise")) == "done"


async def test_a_server_that_the_agent_killed_is_started_again(begin: Begin) -> None:
    rollout = await begin(settings())
    await rollout.call("mcp_notes_add_note", "a")
    await rollout.shell("pkill -f server.py")

    async def ended() -> bool:
        """The shell that ran the server has seen its end, too."""
        sessions = await rollout.sandbox.sessions()
        return all(each.status.state is not JobState.RUNNING for each in sessions)

    await eventually(ended, "the end of the server")
    assert result(await rollout.call("mcp_notes_add_note", "b")) == "1 notes"


async def test_the_agent_that_changes_its_server_is_told(begin: Begin) -> None:
    rollout = await begin(settings("changes"))
    done = await rollout.call("mcp_notes_add_note", "a")
    assert "has changed its tool add_note" in done.content and await rollout.left("calls") == []


async def test_the_agent_that_breaks_its_server_is_told(begin: Begin) -> None:
    rollout = await begin(settings())
    await rollout.sandbox.write_file("/work/server.py", b"raise SystemExit('broken by the agent')")
    done = await rollout.call("mcp_notes_add_note", "a")
    assert "can't be started: it ended with exit code 1: broken by the agent" in done.content


async def test_a_server_that_ends_at_once_is_rejected_before_the_group_begins(begin: Begin) -> None:
    with pytest.raises(ServiceRejected, match="it ended with exit code 1: this server is broken"):
        await begin(settings("exits"))


async def test_only_an_idempotent_call_is_repeated_in_the_next_sandbox(begin: Begin) -> None:
    rollout = await begin(settings(idempotent=("add_note",)))
    for name, repeated in (("mcp_notes_add_note", True), ("mcp_notes_look_up", False)):
        done = await rollout.tools[name].replay({"text": "a"}, rollout.context(), "")
        assert (done is not None) == repeated


async def test_the_model_doesnt_see_the_server_as_its_own_process(begin: Begin) -> None:
    rollout = await begin(settings())
    await rollout.call("mcp_notes_add_note", "a")
    dispatcher = Dispatcher(REGISTRY, UNSET.get)
    done = await dispatcher.run("process", '{"action": "list"}', REGISTRY.names, rollout.context())
    assert json.loads(done.content) == {"processes": []}


async def test_a_sandbox_that_is_gone_is_never_a_result(begin: Begin, tool_backend: LocalBackend) -> None:
    rollout = await begin(settings())
    await rollout.call("mcp_notes_add_note", "a")
    await tool_backend.destroy(LEASE)
    with pytest.raises(SandboxLost):
        await rollout.call("mcp_notes_add_note", "b")


def test_secrets_never_enter_a_sandbox() -> None:
    with pytest.raises(ValueError, match="secrets never enter a sandbox"):
        McpServer(command=("server",), secrets={"TOKEN": "NOTES_TOKEN"})


NOTED = """
from clotho_tools import *
print([mcp_notes_add_note(text=each)["result"] for each in "ab"], mcp_notes_misbehave(text="raise")["error"])
"""


async def test_code_calls_a_server_and_a_second_attempt_calls_nothing(begin: Begin) -> None:
    rollout = await begin(settings())
    for _ in range(2):
        done = await rollout.run("execute_code", call="0-7", code=NOTED)
        assert json.loads(done.content)["output"] == "['1 notes', '2 notes'] no such thing\n", done.content
        assert await rollout.left("calls") == ["add_note a", "add_note b", "misbehave raise"]


@pytest.mark.parametrize(("idempotent", "repeated"), [((), False), (("*",), True)])
async def test_code_that_called_a_server_is_repeated_as_its_calls_may_be(
    begin: Begin, idempotent: tuple[str, ...], repeated: bool
) -> None:
    rollout = await begin(settings(idempotent=idempotent))
    dispatcher, context = rollout.dispatcher(), rollout.context("0-7")
    code = json.dumps({"code": NOTED})
    again = await dispatcher.replay("execute_code", code, dispatcher.names, context, "", False)
    assert (again is not None) == repeated


async def test_code_is_told_of_a_call_whose_answer_was_lost(begin: Begin, tmp_path: Path) -> None:
    """A server on the host, called by an attempt that died: no later one calls it again."""
    command = (sys.executable, "-S", str(SERVER_FILE), str(tmp_path))
    rollout = await begin(McpServer(command=command, where="host"))
    code = "import clotho_tools as t; print(t.mcp_notes_add_note(text='a'), t.mcp_notes_add_note(text='b'))"
    rollout.parts["0-7 00-claim"] = ToolOutcome(content="another attempt")
    said = json.loads((await rollout.run("execute_code", call="0-7", code=code)).content)["output"]
    assert "wasn't made again" in said and "{'result': '1 notes'}" in said
    assert (tmp_path / "calls").read_text().splitlines() == ["add_note b"]
    await rollout.servers.close()


def test_parameters_that_python_has_no_names_for_are_still_given() -> None:
    parameters: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"user-id": {}, "from": {}, "_call": {}, "text": {}},
        "required": ["from", "text"],
    }
    odd = mcp_tool(
        "mcp_notes_odd", ServerTool("notes", "odd"), "d\ud800\n", parameters, McpServers(UNSET.get)
    )
    given: dict[str, Any] = {"_call": lambda tool, **more: (tool, more)}
    exec(function(odd), given)
    assert given["mcp_notes_odd"]("x", **{"from": 1, "user-id": 2}) == (
        "mcp_notes_odd",
        {"text": "x", "from": 1, "user-id": 2},
    )
