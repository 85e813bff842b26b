"""Work of tools that a policy makes as long, as large or as late as it can."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell
from tests.support import PATIENCE_SECONDS
from tests.tools.calls import ToolCalls, fields

pytestmark = needs_root


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
        json.dump({"tool": "terminal", "arguments": {"command": "echo x >> /work/late; sleep 600"}}, file)
    os.rename(file.name, os.path.join(clotho_tools._folder, "%d.request" % number))
    os.kill(os.getppid(), 9)
"""
    done = await ran(calls, code)
    assert (done["exit_code"], done["tool_calls_made"]) == (137, 0), done
    assert (await calls.context().sandbox.read_file("/work/late", 1)).error == "not_found"


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
