"""Every registered tool, with any arguments in any workspace: what a call may cost the worker that makes it.

Commands, browsers and MCP servers are processes of their own, and aren't counted.
"""

import ctypes
import gc
import json
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from clotho.errors import SandboxLost
from clotho.plugins.browser.launch import lacking
from clotho.plugins.browser.settings import BrowserSettings
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.tools.arguments import MAX_CHARS
from clotho.tools.dispatch import accepted_arguments
from clotho.tools.tool import Dispatched, Tool, ToolOutcome
from tests.event_loop import watched_callbacks
from tests.fuzz.runner import Fuzzer
from tests.fuzz.tool_arguments import ToolCase, arguments, case
from tests.sandbox.conftest import needs_root
from tests.support import SHARED_LEASE
from tests.tools.calls import REGISTRY, SETTINGS, ToolCalls, fields
from tests.tools.ledgers import IN_SANDBOX, SERVERS
from tests.tools.row import SESSION
from tests.tools.rows import ANSWERS, SITE

pytestmark = needs_root
LEASE = "fuzzed/lease/0"
MOST_MEMORY = 64 << 20
"""Bytes beyond those of the result."""
MOST_PROCESSOR = 2.0
LONGEST_CALLBACK = 0.1
ATTEMPTS = 4
"""A machine that stands still, or collects garbage, is no finding: the least of so many measurements counts."""
CALL_SECONDS = 5.0
TOOLS = [
    tool
    for tool in REGISTRY
    if not tool.name.startswith("mcp_") or tool.name.startswith(f"mcp_{IN_SANDBOX}_")
]
"""Without those of an MCP server on the host, whose programs have no sandbox."""
OF_BROWSER = [tool for tool in TOOLS if tool.toolset == "browser"]
OTHERS = [tool for tool in TOOLS if tool.toolset != "browser"]


@dataclass
class Cost:
    """What a call took of this process."""

    memory: int
    processor: float
    callback: float
    what: str

    def least(self, other: "Cost") -> "Cost":
        longest = min((self, other), key=lambda cost: cost.callback)
        return Cost(
            min(self.memory, other.memory),
            min(self.processor, other.processor),
            longest.callback,
            longest.what,
        )


@pytest.fixture
def backend(folder: Path) -> LocalBackend:
    return LocalBackend(folder / "fuzzed-tools")


@asynccontextmanager
async def calls_in(backend: LocalBackend) -> AsyncIterator[ToolCalls]:
    """Calls in a sandbox of their own: the outputs of all commands stay on its disk, and fill it in the end."""
    spec = SandboxSpec.model_validate({**SHARED_LEASE, "disk_mb": 200, "memory_mb": 512})
    try:
        yield ToolCalls(await backend.create(LEASE, spec), LEASE)
    finally:
        await SERVERS.close()
        await backend.destroy(LEASE)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_has_arguments_made_from_its_schema(tool: Tool) -> None:
    """A target that never gets beyond the check of its arguments tries nothing."""
    made = [accepted_arguments(tool, json.dumps(arguments(Random(number), tool))) for number in range(50)]
    good = [each for each in made if not isinstance(each, ToolOutcome)]
    assert len(good) > 5, made[0]
    properties = tool.parameters.get("properties", {})
    assert isinstance(properties, dict)
    assert properties.keys() <= {name for each in good for name in each}


async def test_tools_keep_to_their_bounds(backend: LocalBackend, fuzzer: Fuzzer) -> None:
    await bounded(backend, fuzzer, OTHERS)


@pytest.mark.skipif(lacking() is not None, reason=str(lacking()))
async def test_browser_tools_keep_to_their_bounds(backend: LocalBackend, fuzzer: Fuzzer) -> None:
    await bounded(backend, fuzzer, OF_BROWSER)


async def bounded(backend: LocalBackend, fuzzer: Fuzzer, tools: list[Tool]) -> None:
    gc.collect()
    gc.freeze()  # what the tests have imported is no garbage of a call

    async def check(made: ToolCase) -> None:
        excess = ""
        costs: list[Cost] | None = None
        for _ in range(ATTEMPTS):
            measured = await play(backend, made)
            costs = measured if costs is None else list(map(Cost.least, costs, measured))
            if not (excess := "; ".join(filter(None, map(beyond, made.calls, costs)))):
                return
        raise AssertionError(excess)

    assert await fuzzer.run_async(lambda random: case(random, tools), check) > 0


def beyond(call: tuple[str, str], cost: Cost) -> str | None:
    """How a call was beyond the bounds, in words."""
    found = []
    if cost.memory > MOST_MEMORY:
        found.append(f"{cost.memory >> 20} MB")
    if cost.processor > MOST_PROCESSOR:
        found.append(f"{cost.processor:.1f} s of the processor")
    if cost.callback > LONGEST_CALLBACK:
        found.append(f"{cost.callback:.2f} s in {cost.what}")
    return f"{call[0]} took {', '.join(found)}" if found else None


async def play(backend: LocalBackend, made: ToolCase) -> list[Cost]:
    async with calls_in(backend) as calls:
        await calls.start_over()
        calls.settings = SETTINGS.model_copy(
            update={
                "terminal_timeout": 2.0,
                "longest_command_seconds": 2.0,
                "browser": BrowserSettings(sites={SITE: ANSWERS}, seconds=2.0),
            }
        )
        await calls.shell("\n".join(made.made))
        return [
            await measured(calls, name, text.replace(SESSION, calls.session)) for name, text in made.calls
        ]


async def measured(calls: ToolCalls, name: str, text: str) -> Cost:
    calls.next()
    context = replace(calls.context(), seconds_left=CALL_SECONDS)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts at what is resident now
    processor = time.process_time()
    async with watched_callbacks() as callbacks:
        done = await outcome(calls.dispatcher.run(name, text, calls.dispatcher.names, context))
    processor = time.process_time() - processor
    memory = resident("VmHWM") - before - len(done.content.encode())
    calls.state |= done.state
    calls.session = str(fields(done).get("session_id", calls.session))
    assert "Tool execution failed" not in done.content, done.content
    assert len(done.content) <= longest(calls, name), len(done.content)
    return Cost(memory, processor, callbacks.longest, callbacks.what)


async def outcome(call: Awaitable[Dispatched]) -> Dispatched:
    """The call's outcome; an empty one where its commands have filled the sandbox's disk, which ends a rollout."""
    try:
        return await call
    except SandboxLost as lost:
        if lost.exhausted != "disk":
            raise
        return Dispatched(content="")


def longest(calls: ToolCalls, name: str) -> int:
    tool = REGISTRY.get(name)
    return (
        2 * MAX_CHARS
        if tool is not None and tool.unlimited_result
        else calls.settings.max_result_chars + 5_000
    )


def resident(which: str) -> int:
    """Bytes of this process's memory: now (VmRSS), or at its peak (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{which}:")[2].split()[0]) << 10
