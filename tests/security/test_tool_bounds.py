"""Work of tools that a policy makes as long, as large or as late as it can."""

import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from clotho.plugin_settings import sections_of
from clotho.plugins.mcp.servers import McpServers
from clotho.plugins.mcp.settings import McpServer, McpSettings
from clotho.plugins.mcp.tool import tools_of
from clotho.tools.source import ProbedSandbox
from tests.event_loop import watched_callbacks
from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell
from tests.support import PATIENCE_SECONDS
from tests.tools.calls import ToolCalls, fields
from tests.tools.test_mcp import SERVER

pytestmark = needs_root
LONGEST_CALLBACK = 0.5
"""Seconds of the processor; a tenth is usual, and a heartbeat has ten seconds."""
LONGEST_PATCH = 6.0
"""Seconds of the processor; a second and a half is usual."""
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 24))
SKILL = "---\nname: knots\ndescription: Tie knots.\n---\n\n"


@pytest.fixture
def calls(isolated: Shell, lease: str) -> ToolCalls:
    return ToolCalls(isolated.sandbox, lease)


async def ran(calls: ToolCalls, code: str) -> dict[str, Any]:
    return fields(await calls.run("execute_code", {"code": code}))


@pytest.mark.attack(
    "sandbox", "code that has calls made after its end, by requests and answers that it forges"
)
async def test_no_call_is_made_after_the_end_of_code_that_forged_its_answer(calls: ToolCalls) -> None:
    code = """
import json, os, clotho_tools
for number in range(50):
    with open(os.path.join(clotho_tools._folder, "%d.answer" % number), "w") as file:
        file.write("{}")
    with open(os.path.join(clotho_tools._folder, "draft"), "w") as file:
        arguments = {"command": "echo x >> /work/late; sleep 600", "timeout": 2}
        json.dump({"tool": "terminal", "arguments": arguments}, file)
    os.rename(file.name, os.path.join(clotho_tools._folder, "%d.request" % number))
    os.kill(os.getppid(), 9)
"""
    done = await ran(calls, code)
    # The first may be seen before its code ends: of all fifty, none is made later.
    assert done["exit_code"] == 137 and done["tool_calls_made"] <= 1, done
    late = await calls.context().sandbox.read_file("/work/late", 1_000)
    assert late.content.decode().count("x") <= done["tool_calls_made"]


@pytest.mark.attack("sandbox", "code whose calls together have many times its own time")
async def test_calls_share_the_time_of_the_code(calls: ToolCalls) -> None:
    calls.next()
    text = json.dumps({"code": "from clotho_tools import terminal\nwhile True: terminal('exec sleep 600')"})
    context = replace(calls.context(), seconds_left=2.0)
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE_SECONDS):
        done = fields(await calls.dispatcher.run("execute_code", text, calls.dispatcher.names, context))
    assert (done["status"], done["tool_calls_made"]) == ("timeout", 1), done
    assert time.monotonic() - began < PATIENCE_SECONDS / 2


@pytest.mark.attack("sandbox", "arguments, or JSON within them, that are slow to check")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("todo", {"todos": [1] * 600_000}),
        ("todo", {"todos": [{}] * 400_000}),
        ("todo", {"todos": json.dumps([json.dumps({"id": 1})] * 100_000)}),
        ("clarify", {"question": "Which?", "choices": [1] * 600_000}),
        ("terminal", {"command": "true", **{str(number): 1 for number in range(150_000)}}),
        ("terminal", '{"command":' * 150_000),
        ("write_file", {"path": "x", "content": "x" * 12_000_000}),
    ],
    ids=["numbers", "objects", "text", "choices", "names", "nested", "long"],
)
async def test_arguments_that_are_slow_to_check(
    calls: ToolCalls, tool: str, arguments: dict[str, Any] | str
) -> None:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    calls.next()
    async with watched_callbacks() as callbacks:
        done = await calls.dispatcher.run(tool, text, calls.dispatcher.names, calls.context())
    assert done.failure is not None and len(done.content) < 2_000
    assert callbacks.longest < LONGEST_CALLBACK, callbacks.what


@pytest.mark.attack("sandbox", "a replacement in so many places that the result is gigabytes")
@pytest.mark.parametrize(("lines", "new"), [(400_000, 60_000), (80_000, 200)])
async def test_a_replacement_of_many_places(calls: ToolCalls, lines: int, new: int) -> None:
    await calls.context().sandbox.write_file("/work/file", b"x\n" * lines)
    replacement = {"mode": "replace", "old_string": "x", "new_string": "y" * new, "replace_all": True}
    done = fields(await calls.run("patch", {"path": "file", **replacement}))
    assert done["success"] is False and "more than" in done["error"]
    assert (await calls.shell("wc -c < file")).strip() == str(2 * lines)


@pytest.mark.attack("sandbox", "indentation that a replacement multiplies")
async def test_a_replacement_whose_indentation_grows(calls: ToolCalls) -> None:
    await calls.context().sandbox.write_file("/work/file", b" " * 100_000 + b"one\n two\n")
    replacement = {"mode": "replace", "old_string": " one\n  two", "new_string": " x\n" * 50_000}
    done = fields(await calls.run("patch", {"path": "file", **replacement}))
    assert done["success"] is False and "more than" in done["error"]


@pytest.mark.attack("sandbox", "patches whose place, or difference, is slow to find")
@pytest.mark.parametrize("sign", ["-", "-  "], ids=["as written", "indented"])
async def test_a_patch_of_many_hunks_in_a_large_file(calls: ToolCalls, sign: str) -> None:
    text = "".join(f"line {number}\n" for number in range(400_000))
    await calls.context().sandbox.write_file("/work/file", text.encode())
    hunks = "".join(f"@@\n{sign}line {400 * number}\n+LINE {number}\n" for number in range(800))
    before = time.process_time()
    done = fields(await calls.run("patch", {"mode": "patch", "patch": f"*** Update File: file\n{hunks}"}))
    assert done["success"] is False and "fewer changes" in done["error"]
    assert time.process_time() - before < LONGEST_PATCH


@pytest.mark.attack(
    "sandbox", "patches of so many files, or of one so often, that they fill the worker's memory"
)
async def test_a_patch_that_changes_a_large_file_often(calls: ToolCalls) -> None:
    await calls.context().sandbox.write_file("/work/file", b"line\n" * 800_000 + b"end\n")
    updates = "*** Update File: file\n end\n+more\n*** Update File: file\n-more\n" * 100
    done = fields(await calls.run("patch", {"mode": "patch", "patch": updates}))
    assert done["success"] is False and "in several" in done["error"]
    files = "".join(f"*** Add File: f{number}\n+x\n" for number in range(10_000))
    done = fields(await calls.run("patch", {"mode": "patch", "patch": files}))
    assert done["success"] is False and "names 10000 files" in done["error"]


@pytest.mark.attack("sandbox", "a skill whose front matter or text is more than it seems")
@pytest.mark.parametrize(
    "head", [MERGES, "a: " + "[" * 5_000, "!!bool x: y\n", "a: b\n" * 3_000, "x: 190" + ":20" * 2_000]
)
async def test_front_matter_that_is_slow_to_read(calls: ToolCalls, head: str) -> None:
    skill = f"---\n{head}\nname: knots\ndescription: Tie knots.\n---\n\nPull.\n"
    before = time.process_time()
    await calls.run("skill_manage", {"action": "create", "name": "knots", "content": skill})
    await calls.run("skills_list", {})
    assert time.process_time() - before < LONGEST_PATCH


@pytest.mark.attack("sandbox", "a skill whose front matter or text is more than it seems")
async def test_a_replacement_in_a_skill(calls: ToolCalls) -> None:
    skill = {"name": "knots", "content": SKILL + "x" * 90_000}
    await calls.run("skill_manage", {"action": "create", **skill})
    patch = {"action": "patch", "name": "knots", "old_string": "x", "new_string": "y" * 100_000}
    done = fields(await calls.run("skill_manage", {**patch, "replace_all": True}))
    assert "may have 100,000 characters" in done["error"]


@pytest.mark.attack("sandbox", "an MCP server whose answer is slow to read")
@pytest.mark.parametrize("where", ["sandbox", "host"])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("blocks", "x\nx\nx"),
        ("most blocks", "more than 100,000 values"),
        ("values", "more than 100,000 values"),
    ],
)
async def test_an_answer_of_many_parts(
    calls: ToolCalls, tmp_path: Path, where: Literal["sandbox", "host"], how: str, said: str
) -> None:
    await calls.context().sandbox.write_file("/work/server.py", SERVER.read_bytes())
    (tmp_path / "starts").touch()
    place = ("/work/server.py", "/work") if where == "sandbox" else (str(SERVER), str(tmp_path))
    program = "python3" if where == "sandbox" else sys.executable
    server = McpServer(command=(program, "-S", *place), where=where)
    servers = McpServers(lambda name: None)
    sandbox = ProbedSandbox(calls.context().sandbox, ("probe",), "/work")
    tools = {tool.origin.tool: tool for tool in await tools_of("notes", server, servers, sandbox)}
    tool = tools["misbehave"]
    calls.settings = calls.settings.model_copy(
        update={"plugins": sections_of(McpSettings(servers={"notes": server}))}
    )
    calls.dispatcher = calls.dispatcher.with_tools([tool])
    async with watched_callbacks() as callbacks:
        done = await calls.run(tool.name, {"text": how})
    await servers.close()
    assert said in done.content.replace("\\n", "\n"), done.content[:300]
    assert callbacks.longest < LONGEST_CALLBACK, callbacks.what
