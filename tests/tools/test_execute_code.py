"""Code that calls tools: its bounds, what it can't break, and a worker that dies while it runs."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from clotho.config import variable
from clotho.identifiers.keys import call_key, call_part_key
from clotho.rollouts.call import CallEntry
from clotho.sandbox.backend import JobState
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from clotho.tools import execute_code
from clotho.tools.dispatch import Dispatcher
from clotho.tools.execute_code import MOST_CALLS, STDERR_CHARS
from clotho.tools.output import OUTPUT_CHARS
from clotho.tools.registry import Registry
from clotho.tools.schemas import object_schema
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually, start
from tests.tools.calls import REGISTRY, Death, MortalInstance, ToolCalls, WorkerDied, fields
from tests.workflows.scripts import say


async def ran(calls: ToolCalls, code: str) -> dict[str, Any]:
    return fields(await calls.run("execute_code", {"code": code}))


async def test_only_what_the_code_prints_comes_back(calls: ToolCalls) -> None:
    code = """
from hermes_tools import *
write_file("a", "one\\ntwo\\n")
assert patch(mode="replace", path="a", old_string="two", new_string="three")["success"]
print(read_file("a")["content"], len(search_files(pattern="three")))
terminal("cd /tmp; export SEEN=1")
"""
    done = await ran(calls, code)
    assert (done["status"], done["exit_code"], done["tool_calls_made"]) == ("success", 0, 5), done
    assert done["output"].startswith("     1|one\n     2|three ")
    shell = fields(await calls.run("terminal", {"command": 'echo "$PWD $SEEN"'}))
    assert shell["output"] == "/tmp 1\n", "one shell for the code's commands and the model's"


async def test_an_exception_is_shown_with_its_traceback(calls: ToolCalls) -> None:
    done = await ran(calls, "print('before')\n1 / 0")
    assert (done["status"], done["exit_code"], done["output"]) == ("error", 1, "before\n")
    assert done["error"].endswith("ZeroDivisionError: division by zero")
    assert (await calls.run("execute_code", {"code": "1 / 0"})).failure is None, "the model's own mistake"


async def test_calls_are_bounded(calls: ToolCalls) -> None:
    code = f"""
from clotho_tools import terminal
for number in range({MOST_CALLS + 1}):
    terminal("echo x >> made")
"""
    done = await ran(calls, code)
    assert done["tool_calls_made"] == MOST_CALLS and "at most 50 tool calls" in done["error"]
    assert await calls.shell("wc -l < made") == f"{MOST_CALLS}\n"


async def test_code_is_offered_no_more_than_the_model(calls: ToolCalls) -> None:
    calls.next()
    code = json.dumps(
        {"code": "import clotho_tools as t; print(hasattr(t, 'terminal'), t._call('terminal'))"}
    )
    offered = ["execute_code", "read_file"]
    done = await calls.dispatcher.run("execute_code", code, offered, calls.context())
    assert fields(done)["output"].startswith("False {'error': \"Unknown tool")


async def test_repeated_code_is_offered_no_more_than_before(calls: ToolCalls) -> None:
    calls.next()
    code = {"code": "import clotho_tools as t; assert not hasattr(t, 'terminal')"}
    offered = ["execute_code", "read_file"]
    done = await calls.dispatcher.run("execute_code", json.dumps(code), offered, calls.context())
    again = await calls.replay("execute_code", code, done, offered)
    assert again is not None and again.exit_code == done.exit_code == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_code_that_floods_a_stream_is_bounded(calls: ToolCalls, stream: str) -> None:
    done = await ran(calls, f"import sys\nfor _ in range(100): sys.{stream}.write('x' * 1_000_000)")
    assert len(done["output"]) <= OUTPUT_CHARS + 200
    if stream == "stdout":
        assert done["status"] == "error" and "it printed more than 50,000,000 bytes" in done["error"]
    else:
        assert done["status"] == "success" and len(done["stderr"]) <= STDERR_CHARS + 200


async def test_forked_processes_call_tools_side_by_side(calls: ToolCalls) -> None:
    code = """
import os
from clotho_tools import terminal
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        terminal("echo %d >> made" % number)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""
    assert (await ran(calls, code))["tool_calls_made"] == 4
    assert sorted((await calls.shell("cat made")).split()) == ["0", "1", "2", "3"]


async def test_code_that_kills_its_parent_has_failed(calls: ToolCalls) -> None:
    done = await ran(calls, "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)")
    assert (done["status"], done["exit_code"]) == ("error", 137)
    assert (await ran(calls, "print(1)"))["output"] == "1\n"


async def test_a_process_left_behind_is_not_waited_for(calls: ToolCalls) -> None:
    code = "import subprocess\nsubprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL)\nprint('done')"
    assert (await ran(calls, code))["output"] == "done\n"


async def test_code_is_ended_after_its_time(calls: ToolCalls) -> None:
    calls.next()
    code = json.dumps({"code": "print('begun', flush=True)\nwhile True: pass"})
    context = replace(calls.context(), seconds_left=2.0)
    done = fields(await calls.dispatcher.run("execute_code", code, calls.dispatcher.names, context))
    assert (done["status"], done["exit_code"]) == ("timeout", 124) and "after 2 s" in done["error"]


@pytest.mark.parametrize("written", ["'{'", "'[1]'", "'x' * 3_000_000", '\'{"tool": [], "arguments": 3}\''])
async def test_a_request_that_is_none_is_answered(calls: ToolCalls, written: str) -> None:
    code = f"""
import os, clotho_tools
open(os.path.join(clotho_tools._folder, "0.request"), "w").write({written})
print(clotho_tools._answer(os.path.join(clotho_tools._folder, "0.answer")))
"""
    assert "error" in (await ran(calls, code))["output"]


async def test_no_time_of_the_code_passes_while_no_worker_serves_it(calls: ToolCalls) -> None:
    code = """
import threading, time
from clotho_tools import terminal
def waits():
    time.sleep(1.5)
    open("/work/waited", "w").close()
threading.Thread(target=waits).start()
print(terminal("echo answered")["output"])
"""
    calls.next()
    text = json.dumps({"code": code})
    dying: Any = MortalInstance(calls.context().sandbox, Death(1, served=True))
    with pytest.raises(WorkerDied):
        context = replace(calls.context(dying), seconds_left=1.0)
        await calls.dispatcher.run("execute_code", text, calls.dispatcher.names, context)

    async def waited() -> bool:
        return (await calls.context().sandbox.read_file("/work/waited", 1)).error is None

    await eventually(waited, "more than its seconds to pass")
    done = fields(await calls.attempt("execute_code", text))
    assert (done["status"], done["output"], done["tool_calls_made"]) == ("success", "answered\n\n", 1), done


async def test_no_request_is_answered_that_dead_code_left(calls: ToolCalls) -> None:
    code = """
import json, os, clotho_tools
with open(os.path.join(clotho_tools._folder, "0.request"), "w") as file:
    json.dump({"tool": "terminal", "arguments": {"command": "touch /work/late"}}, file)
"""
    assert await calls.dies("execute_code", {"code": code}, 1, served=True)
    sandbox, key = calls.context().sandbox, calls.context().job_key()

    async def ended() -> bool:
        return (await sandbox.wait(key, 1)).state is JobState.EXITED

    await eventually(ended, "the code to end")
    done = fields(await calls.attempt("execute_code", {"code": code}))
    assert (done["status"], done["tool_calls_made"]) == ("success", 0)
    assert (await sandbox.read_file("/work/late", 1)).error == "not_found"


class Endless(Tool):
    """A tool that keeps no deadline."""

    name = "web_search"
    toolset = "web"
    called_by_code = True
    sandboxed = False
    description = "Search for ever."
    parameters = object_schema()

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")


async def test_a_call_that_keeps_no_deadline_ends_with_the_code(
    calls: ToolCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute_code, "CLOSING_SECONDS", 0.5)
    calls.next()
    registry = Registry([REGISTRY.get("execute_code"), Endless()])  # type: ignore[list-item]
    dispatcher = Dispatcher(registry, variable)
    text = json.dumps({"code": "from clotho_tools import web_search\nweb_search()"})
    context = replace(calls.context(), seconds_left=1.0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        done = fields(await dispatcher.run("execute_code", text, registry.names, context))
    assert done["status"] == "timeout", done


@pytest.mark.slow
async def test_a_worker_that_dies_while_code_runs_does_nothing_twice(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, "code/g000000/r0"
    code = """
import os, time
from clotho_tools import terminal
open("/work/ran", "a").write("run\\n")
terminal("echo first >> /work/made")
while not os.path.exists("/work/go"):
    time.sleep(0.02)
terminal("echo second >> /work/made")
print(open("/work/ran").read() + open("/work/made").read())
"""
    turns = (ScriptedTurn(calls=(ScriptedCall(name="execute_code", arguments={"code": code}),)), say("Done."))
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        worker = await cluster.start_worker()
        overrides = {"enabled_toolsets": ["terminal", "code_execution"]}
        handle = await start(cluster, "code", url, overrides=overrides)

        async def answered() -> bool:
            return (cluster.store / call_part_key(rollout, "0000-00", "00-l0")).exists()

        await eventually(answered, "the first call of the code journalled")
        await worker.kill()
        [work] = cluster.folder.glob("sandboxes/*/sandboxes/*/disk/work")
        (work / "go").touch()
        await cluster.start_worker()
        await handle.result()
    entry = await cluster.open_journal().read_required(call_key(rollout, "0000-00"), CallEntry)
    done = json.loads(entry.content)
    assert done["output"].split() == ["run", "first", "second"] and done["tool_calls_made"] == 2


async def test_code_with_a_nul_is_refused(calls: ToolCalls) -> None:
    done = await calls.run("execute_code", {"code": "print('a\0b')"})
    assert done.failure is not None and "NUL" in done.content


async def test_code_is_run_as_it_was_written(calls: ToolCalls) -> None:
    text = "\"'\\'$HOME `echo` %s\r\x7fä\u2028😀 !! \\\\"
    assert (await ran(calls, f"print(ascii({text!r}))  # {text!r}"))["output"] == ascii(text) + "\n"
    lines = "print('''{}''')".format("\n  $(exit 3)\t'\"\n")
    assert (await ran(calls, lines))["output"] == "\n  $(exit 3)\t'\"\n\n"


async def test_the_folder_of_code_is_made_anew_whatever_stands_there(calls: ToolCalls) -> None:
    await calls.shell(
        "rm -rf /tmp/.clotho-code; mkdir kept; touch kept/file; ln -s /work/kept /tmp/.clotho-code"
    )
    assert (await ran(calls, "print(1)"))["output"] == "1\n"
    await calls.shell("rm -rf /tmp/.clotho-code; touch /tmp/.clotho-code")
    assert (await ran(calls, "print(2)"))["output"] == "2\n"
    assert await calls.shell("ls kept; ls /tmp/.clotho-code | wc -l") == "file\n1\n"
