import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clotho.errors import SandboxLost
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.tools.tool import ToolSettings
from tests.sandbox.shell import until
from tests.sandbox.tool_calls import Calls
from tests.support import PATIENCE_SECONDS

UNTIL_NONE_SLEEPS = "while pgrep sleep > /dev/null; do :; done; echo none"
"""What was killed ends once it has a turn."""


@pytest.fixture
async def backend(folder: Path) -> LocalBackend:
    return LocalBackend(folder / "tool-sandboxes")


@pytest.fixture
async def call(backend: LocalBackend, request: pytest.FixtureRequest) -> AsyncIterator[Calls]:
    lease = f"tools/{request.node.name}"
    yield Calls(await backend.create(lease, SandboxSpec()))
    await backend.destroy(lease)


async def test_a_command_shows_its_output_and_exit_code(call: Calls) -> None:
    assert await call("terminal", command="echo out; echo err >&2; exit 3") == {
        "output": "out\nerr\n",
        "exit_code": 3,
        "error": None,
    }
    assert call.dispatched.failure is None
    assert call.offsets[-1] == len("out\nerr\n")


async def test_exit_codes_that_are_no_errors_are_explained(call: Calls) -> None:
    result = await call("terminal", command="echo a > f; grep b f")
    assert (result["exit_code"], result["exit_code_meaning"]) == (1, "No lines matched (not an error)")


async def test_directory_and_variables_carry_over(call: Calls) -> None:
    await call("terminal", command="mkdir -p a/b && cd a/b && export WHO='a b' && local_only=1")
    assert await call.shell('echo "$PWD $WHO ${local_only-unset}"') == "/work/a/b a b unset\n"
    assert (await call("terminal", command="pwd", workdir="/tmp"))["output"] == "/tmp\n"


async def test_the_first_command_starts_in_the_configured_directory(call: Calls) -> None:
    call.settings = ToolSettings(terminal_cwd="/tmp")
    assert await call.shell("pwd; cd /work") == "/tmp\n"
    assert await call.shell("pwd") == "/work\n"


async def test_a_second_attempt_attaches_and_does_not_run_again(call: Calls) -> None:
    command = "echo run >> log; cat log"
    first = await call("terminal", command=command)
    assert first == await call.again("terminal", command=command)
    assert await call.shell("cat log") == "run\n"


async def test_an_interrupted_attempt_leaves_the_command_running(call: Calls) -> None:
    command = "echo started; while [ ! -e go ]; do read -t 0.05 < <(:) ; done; echo done >> log; cat log"
    first = asyncio.create_task(call("terminal", command=command))
    while not (key := getattr(call, "last", None)) or (
        (await call.sandbox.wait(key.job_key(), 0.05)).output_size == 0
    ):
        await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await call.sandbox.write_file("go", b"")
    assert (await call.again("terminal", command=command))["output"] == "started\ndone\n"


async def test_a_timeout_ends_the_command_and_keeps_its_output(call: Calls) -> None:
    for seconds in (1, 10, 90):
        result = await call("terminal", command="echo before; export X=1; sleep 1000", timeout=seconds)
        assert result["exit_code"] == 124
        if "before" in result["output"]:  # else it hadn't begun by then
            break
    assert result["output"] == f"before\n\n[Command timed out after {seconds}s]"
    assert call.dispatched.failure is None
    assert await call.shell(UNTIL_NONE_SLEEPS) == "none\n"


async def test_too_long_a_foreground_command_is_refused(call: Calls) -> None:
    result = await call("terminal", command="true", timeout=601)
    assert result["exit_code"] == -1 and "background=true" in result["error"]
    assert call.dispatched.failure is not None and call.state == {}


async def test_long_output_keeps_its_head_and_tail(call: Calls) -> None:
    result = await call("terminal", command="seq 100000 | sed 's/^/line /'")
    assert result["output"].startswith("line 1\n") and result["output"].endswith("line 100000\n")
    assert "chars omitted out of 1,088,895 total" in result["output"]
    assert 50_000 <= len(result["output"]) < 50_200


async def test_huge_output_is_not_read_whole(call: Calls) -> None:
    result = await call("terminal", command="head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert result["output"].endswith("x\nend\n") and len(result["output"]) < 50_200
    assert "chars omitted out of 3,000,005 total" in result["output"]


async def test_escape_sequences_and_credentials_are_not_shown(call: Calls) -> None:
    result = await call("terminal", command=r"printf '\033[31mred\033[0m AKIAIOSFODNN7EXAMPLE\n'")
    assert result["output"] == "red [REDACTED]\n"


async def test_a_terminal_is_given_where_asked_for(call: Calls) -> None:
    assert (await call("terminal", command="test -t 1 && echo tty", pty=True))["output"] == "tty\n"
    assert (await call("terminal", command="test -t 1 || echo none"))["output"] == "none\n"


@pytest.mark.parametrize("arguments", [{"command": "echo \0"}, {"command": "true", "workdir": "a\0b"}])
async def test_what_no_shell_could_run_is_refused(call: Calls, arguments: dict[str, Any]) -> None:
    assert "NUL" in (await call("terminal", **arguments))["error"]


async def test_a_missing_directory_is_the_commands_failure(call: Calls) -> None:
    result = await call("terminal", command="pwd", workdir="/work/none")
    assert result["exit_code"] != 0 and "none" in result["output"]


async def test_a_command_in_a_lost_sandbox_is_no_result(
    call: Calls, backend: LocalBackend, request: pytest.FixtureRequest
) -> None:
    task = asyncio.create_task(call("terminal", command="echo x; sleep 60"))
    while not hasattr(call, "last") or (await call.sandbox.wait(call.last.job_key(), 0.05)).output_size == 0:
        await asyncio.sleep(0.01)
    await backend.destroy(f"tools/{request.node.name}")
    with pytest.raises(SandboxLost):
        await task


async def test_a_command_that_ended_with_its_supervisor_is_no_result_and_never_run_again(call: Calls) -> None:
    await call("terminal", command="sleep 1000", background=True)
    task = asyncio.create_task(call("terminal", command="echo x >> log; sleep 60"))
    while not (await call.sandbox.read_file("log", 10)).size:
        await asyncio.sleep(0.01)
    await call.sandbox.renew(1)
    with pytest.raises(SandboxLost):
        await task
    with pytest.raises(SandboxLost):
        await call.again("terminal", command="echo x >> log; sleep 60")
    with pytest.raises(SandboxLost):
        await call("process", action="list")


async def ended(call: Calls, session: str) -> dict[str, Any]:
    result = await call("process", action="wait", session_id=session, timeout=int(PATIENCE_SECONDS))
    assert result["status"] == "exited"
    return result


async def test_a_background_process_is_started_once_and_looked_after(call: Calls) -> None:
    arguments = {"command": "echo hello; read line; echo got $line; exit 5", "background": True}
    started = await call("terminal", **arguments)
    session = started["session_id"]
    assert started["output"] == "Background process started" and started["exit_code"] == 0
    assert session == f"proc_{call.last.job_key()[:12]}" and isinstance(started["pid"], int)
    assert (await call.again("terminal", **arguments))["session_id"] == session
    assert call.state == {}

    job = call.last.job_key()

    async def greeted() -> bool:
        return await call.sandbox.output(job) == b"hello\n"

    await until(greeted)
    waited = await call("process", action="wait", session_id=session, timeout=1)
    assert waited["status"] == "timeout" and waited["output"] == "hello\n"
    (listed,) = (await call("process", action="list"))["processes"]
    assert listed["session_id"] == session and listed["status"] == "running"
    assert listed["command"] == arguments["command"] and listed["output_preview"] == "hello\n"

    sent = await call("process", action="submit", session_id=session, data="word")
    assert sent == {"status": "ok", "bytes_written": 5}
    finished = await ended(call, session)
    assert (finished["exit_code"], finished["output"]) == (5, "hello\ngot word\n")
    polled = await call("process", action="poll", session_id=session)
    assert (polled["status"], polled["exit_code"]) == ("exited", 5)
    again = await call("process", action="kill", session_id=session)
    assert again == {"status": "already_exited", "exit_code": 5}
    late = await call("process", action="write", session_id=session, data="x")
    assert late["status"] == "already_exited" and "ended" in late["error"]


async def test_input_is_sent_once_whatever_attempt_asks(call: Calls) -> None:
    session = (await call("terminal", command="cat", background=True))["session_id"]
    arguments = {"action": "submit", "session_id": session, "data": "once"}
    assert await call("process", **arguments) == await call.again("process", **arguments)
    assert (await call("process", action="close", session_id=session))["status"] == "ok"
    assert (await ended(call, session))["output"] == "once\n"
    assert (await call.again("process", action="wait", session_id=session))["exit_code"] == 0


async def test_killing_ends_the_whole_process(call: Calls) -> None:
    session = (await call("terminal", command="sleep 1000 & sleep 1000", background=True))["session_id"]
    killed = await call("process", action="kill", session_id=session)
    assert killed == {"status": "killed", "session_id": session, "exit_code": -15}
    assert (await call.again("process", action="kill", session_id=session))["status"] == "killed"
    assert (await ended(call, session))["exit_code"] == -15
    assert await call.shell(UNTIL_NONE_SLEEPS) == "none\n"


async def test_a_log_shows_the_last_lines_or_those_asked_for(call: Calls) -> None:
    session = (await call("terminal", command="seq 1000", background=True))["session_id"]
    await ended(call, session)
    last = await call("process", action="log", session_id=session)
    assert last["output"].split("\n") == [str(n) for n in range(801, 1001)] and last["total_lines"] == 1000
    part = await call("process", action="log", session_id=session, offset=10, limit=2)
    assert (part["output"], part["showing"]) == ("11\n12", "2 lines")


async def test_nothing_promises_a_notification(call: Calls) -> None:
    result = await call("terminal", command="true", background=True, notify_on_complete=True)
    assert "Nothing will notify you" in result["note"]


async def test_unknown_processes_and_missing_ids_are_said(call: Calls) -> None:
    assert (await call("process", action="poll", session_id="proc_0"))["status"] == "not_found"
    assert "required" in (await call("process", action="poll"))["error"]
    assert (await call("process", action="list"))["processes"] == []


async def test_background_processes_do_not_move_the_shell(call: Calls) -> None:
    await call.shell("cd /tmp")
    session = (await call("terminal", command="cd /; pwd", background=True))["session_id"]
    assert (await ended(call, session))["output"] == "/\n"
    assert await call.shell("pwd") == "/tmp\n"


async def test_background_processes_are_bounded(call: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clotho.tools.terminal.MAX_SESSIONS", 2)
    for _ in range(2):
        assert (await call("terminal", command="sleep 1000", background=True))["exit_code"] == 0
    assert "2 background processes" in (await call("terminal", command="true", background=True))["error"]


async def test_a_large_result_is_written_to_a_file_that_can_be_read(call: Calls) -> None:
    call.settings = ToolSettings(max_result_chars=5_000)
    await call("terminal", command="seq 5000")
    shown = call.dispatched.content
    assert shown.startswith("<persisted-output>") and len(shown) < 2_200
    path = next(line for line in shown.splitlines() if line.startswith("Full output saved to: ")).split(": ")[
        1
    ]
    assert path.startswith("/tmp/clotho-results/call_1-")
    read = await call("read_file", path=path, offset=4_999, limit=3)
    assert read["content"] == "  4999|4998\n  5000|4999\n  5001|5000"


async def test_a_killed_command_is_a_result_and_stays_one(call: Calls) -> None:
    command = "echo x >> log; sleep 60"
    task = asyncio.create_task(call("terminal", command=command))
    while not (await call.sandbox.read_file("log", 10)).size:
        await asyncio.sleep(0.01)
    await call.sandbox.kill(call.last.job_key())
    killed = await task
    assert killed["exit_code"] == 137 and "killed" in killed["exit_code_meaning"]
    assert await call.again("terminal", command=command) == killed
    assert (await call.sandbox.read_file("log", 10)).content == b"x\n"
