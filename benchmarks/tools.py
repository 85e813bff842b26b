"""Costs of each tool's call, beside a command of the terminal in the same sandbox, in one run.

python -m benchmarks.tools
"""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from activities.restore import journalled_parts
from benchmarks.commands import sandbox_root
from benchmarks.table import Row
from clotho.config import Settings, variable
from clotho.identifiers.ids import call_id
from clotho.journal import Journal
from clotho.journal.open_store import open_store
from clotho.plugin_settings import sections_of
from clotho.plugins.browser.client import BrowserClient
from clotho.plugins.browser.launch import lacking
from clotho.plugins.browser.settings import BrowserSettings
from clotho.plugins.mcp.servers import McpServers
from clotho.plugins.mcp.settings import McpServer, McpSettings
from clotho.plugins.mcp.tool import tools_of
from clotho.plugins.skills.settings import SkillsSettings
from clotho.plugins.web.settings import WebSettings
from clotho.sandbox.backend import SandboxInstance, SandboxSpec
from clotho.sandbox.registry import open_backend
from clotho.tools.dispatch import OWN_SCOPE, Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.source import ProbedSandbox
from clotho.tools.tool import CallContext, Dispatched, ToolSettings
from environments.mcp_tasks import ACCOUNTS, SERVER
from environments.web_research import CORPUS

ROUNDS, WARM_UP = 60, 3
LEASE = "bench/g000000/r0/lease/0"
ROLLOUT = "bench/g000000/r0"
SITE = "bench.test"
PAGE = "<title>Shop</title><h1>Shop</h1>" + "".join(f"<a href=/{n}>Item {n}</a><br>" for n in range(40))
ANSWERS = f"""\
printf 'HTTP/1.1 200 OK\\r\\nContent-Type: text/html\\r\\nConnection: close\\r\\n\\r\\n%s' '{PAGE}'"""
SKILL = "---\nname: knots\ndescription: Tie knots that hold.\n---\n\nPull both ends.\n"
LINES = "".join(f"line {number} of a file that is read\n" for number in range(200))
CORPUS_PAGE = "https://velmora.example/towns/port-sele"
INNER = "from clotho_tools import read_file\nread_file('notes.txt')"
OF_FILES, OF_CODE = "≤ 5 ms more than the command", "≤ 20 ms more than the command"


@dataclass(frozen=True)
class Measured:
    """Calls of one tool, the arguments of each by its round."""

    what: str
    tool: str
    arguments: Callable[[int], dict[str, Any]]
    aim: str = ""
    refused: bool = False
    """Whether the model reads that there is no such tool in a rollout."""


def same(**arguments: JsonValue) -> Callable[[int], dict[str, Any]]:
    return lambda number: arguments


TERMINAL = Measured("terminal: true", "terminal", same(command="true"))
MEASURED = (
    Measured("read_file, 200 lines", "read_file", same(path="notes.txt"), OF_FILES),
    Measured("write_file, 200 lines", "write_file", same(path="written.txt", content=LINES), OF_FILES),
    Measured(
        "patch, one line",
        "patch",
        lambda n: {
            "mode": "replace",
            "path": "count",
            "old_string": f"is {n}.",
            "new_string": f"is {n + 1}.",
        },
        OF_FILES,
    ),
    Measured("search_files", "search_files", same(pattern="line 19 "), OF_FILES),
    Measured("todo", "todo", same(todos=[{"id": "1", "content": "look", "status": "pending"}]), OF_FILES),
    Measured("skills_list", "skills_list", same(), OF_FILES),
    Measured("skill_view", "skill_view", same(name="knots"), OF_FILES),
    Measured("memory, which is refused", "memory", same(), OF_FILES, refused=True),
    Measured("session_search, which is refused", "session_search", same(), OF_FILES, refused=True),
    Measured("web_search in a corpus", "web_search", same(query="lighthouse of Port Sele"), OF_FILES),
    Measured("web_extract from a corpus", "web_extract", same(urls=[CORPUS_PAGE]), OF_FILES),
    Measured("a tool of an MCP server in the sandbox", "mcp_ledger_list_accounts", same(), OF_FILES),
    Measured("execute_code: pass", "execute_code", same(code="pass"), OF_CODE),
    Measured("execute_code with a call of read_file", "execute_code", same(code=INNER)),
)
SNAPSHOT = Measured("browser_snapshot", "browser_snapshot", same())


async def measure() -> list[Row]:
    """Each round calls every tool once, and the terminal."""
    need = lacking()
    tools = [TERMINAL, *MEASURED, *([SNAPSHOT] if need is None else [])]
    found: dict[str, list[float]] = {each.what: [] for each in tools}
    async with _rollout(with_browser=need is None) as rollout:
        for number in range(WARM_UP + ROUNDS):
            turned = number % len(tools)
            for each in (*tools[turned:], *tools[:turned]):
                began = time.perf_counter()
                done = await rollout.call(each.tool, each.arguments(number))
                found[each.what].append((time.perf_counter() - began) * 1e3)
                assert (done.failure is not None) == each.refused, done.content
    command = found[TERMINAL.what][WARM_UP:]
    rows = [Row(TERMINAL.what, f"median {statistics.median(command):.1f} ms")]
    rows += [_row(each, found[each.what][WARM_UP:], command) for each in tools[1:]]
    return rows if need is None else [*rows, Row(SNAPSHOT.what, f"not measured. {need}")]


def _row(measured: Measured, spent: list[float], command: list[float]) -> Row:
    """Milliseconds of a tool, and the difference to the command of the same round."""
    more = statistics.median(one - other for one, other in zip(spent, command, strict=True))
    figure = f"median {statistics.median(spent):.1f} ms, {more:+.1f} ms beside the command"
    return Row(measured.what, figure, measured.aim)


@dataclass
class _Rollout:
    """Calls of one rollout, one after another."""

    dispatcher: Dispatcher
    sandbox: SandboxInstance
    settings: ToolSettings
    journal: Journal
    state: dict[str, JsonValue] = field(default_factory=dict)
    calls: int = 0

    async def call(self, name: str, arguments: dict[str, Any]) -> Dispatched:
        self.calls += 1
        call = call_id(self.calls, 0)
        context = CallContext(
            rollout=ROLLOUT,
            call=("call", call),
            tool_call_id=f"call_{self.calls}",
            settings=self.settings,
            state=self.state,
            instance=self.sandbox,
            lease=0,
            once=journalled_parts(self.journal, ROLLOUT, call),
        )
        offered = self.dispatcher.names
        done = await self.dispatcher.run(name, json.dumps(arguments), offered, context)
        self.state |= done.state
        return done


@asynccontextmanager
async def _rollout(with_browser: bool) -> AsyncIterator[_Rollout]:
    """A rollout whose sandbox, server and page are there."""
    ledger = McpServer(command=("python3", SERVER, ACCOUNTS))
    servers = McpServers(variable)
    with sandbox_root() as root:
        skill = root / "skills" / "knots" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(SKILL)
        settings = ToolSettings(
            plugins=sections_of(
                WebSettings(provider="offline", corpus=str(CORPUS)),
                SkillsSettings(folder=str(root / "skills")),
                *([BrowserSettings(sites={SITE: ANSWERS})] if with_browser else []),
                McpSettings(servers={"ledger": ledger}),
            )
        )
        backend = open_backend(Settings(), root / "sandboxes")
        sandbox = await backend.create(LEASE, SandboxSpec(disk_mb=64))
        try:
            await _fill(sandbox)
            probed = ProbedSandbox(sandbox, (ROLLOUT, "tools"), "/work")
            tools = await tools_of("ledger", ledger, servers, probed)
            dispatcher = Dispatcher(Registry([*Registry.discover(), *tools]), variable)
            journal = Journal(open_store(str(root / "store"), Settings()))
            rollout = _Rollout(dispatcher, sandbox, settings, journal)
            if with_browser:
                await rollout.call("browser_navigate", {"url": f"http://{SITE}/"})
            yield rollout
        finally:
            if with_browser:
                await BrowserClient(OWN_SCOPE).close(ROLLOUT)
            await servers.close()
            await backend.destroy(LEASE)


async def _fill(sandbox: SandboxInstance) -> None:
    server = Path(__file__).parents[1] / "environments" / "servers" / "ledger.py"
    files = {
        "notes.txt": LINES.encode(),
        "count": b"The round is 0.\n",
        SERVER: server.read_bytes(),
        ACCOUNTS: b'{"alice": 100, "bob": 20}',
    }
    for path, content in files.items():
        await sandbox.write_file(path, content)


if __name__ == "__main__":
    for row in asyncio.run(measure()):
        print(f"{row.what:42}{row.figure:56}{row.aim}")  # noqa: T201
