import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clotho.errors import CommandConflict, InvalidInput
from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import JobState
from clotho.sandbox.supervised.launch import lock_holder
from tests.sandbox.backends import Backend
from tests.sandbox.shell import Shell, until
from tests.support import PATIENCE_SECONDS

EXITED = JobState.EXITED
OURS = os.getpid()
"""Tells the processes of this run of the tests from those of another, where sandboxes see all of the host."""


async def test_result_output_and_exit_code(shell: Shell) -> None:
    assert await shell.run("echo out; echo err >&2; exit 3") == (EXITED, 3, b"out\nerr\n")


async def test_same_key_returns_the_result_and_never_runs_again(shell: Shell) -> None:
    first = await shell.run("date +%N; exit 1", name="again")
    assert await shell.run("date +%N; exit 1", name="again") == first


async def test_same_key_with_another_command_is_refused(shell: Shell) -> None:
    await shell.run("echo one", name="conflict")
    with pytest.raises(CommandConflict):
        await shell.run("echo two", name="conflict")
    with pytest.raises(CommandConflict):
        await shell.run("echo one", name="conflict", stdin=b"")
    assert (await shell.run("echo one", name="conflict", timeout=5)).code == 0


async def test_command_that_no_shell_could_run_is_refused(shell: Shell) -> None:
    with pytest.raises(InvalidInput):
        await shell.run("echo \0")
    with pytest.raises(InvalidInput):
        await shell.run("true", workdir="/a\nb")


async def test_sixteen_racing_attempts_run_it_once(shell: Shell) -> None:
    async def attempt() -> object:
        return await shell.run("mktemp -p ~ race.XXXXXX >/dev/null; sleep 0.1; exit 5", name="race")

    results = await asyncio.gather(*(attempt() for _ in range(16)))
    assert set(results) == {(EXITED, 5, b"")}
    assert await shell.text("ls ~ | grep -c race") == "1"


async def test_unknown_job_is_absent(shell: Shell) -> None:
    assert (await shell.sandbox.wait(job_key("nobody"), 0)).state is JobState.ABSENT
    assert await shell.sandbox.output(job_key("nobody")) == b""


async def test_attempt_killed_in_the_middle_is_attached_to(
    backend: Backend, shell: Shell, kind: str, folder: object
) -> None:
    driver = f"""
import asyncio
from pathlib import Path
from tests.sandbox.conftest import BACKENDS, SPECS, be_patient
from tests.sandbox.shell import Shell
be_patient()
async def main():
    backend = BACKENDS[{kind!r}](Path({str(folder)!r}) / "sandboxes-{kind}")
    shell = Shell(await backend.attach("shared/lease/0", {shell.sandbox.incarnation!r}))
    await shell.run({SLOW!r}, name="orphan")
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", driver]) as process:
        await shell.output_contains(job_key("orphan"), b"2\n")
        process.send_signal(signal.SIGKILL)
    assert await shell.run(SLOW, name="orphan") == (EXITED, 6, b"1\n2\n3\n4\n")
    assert await shell.text("cat ~/orphan") == "x"


SLOW = "for i in 1 2 3 4; do echo $i; sleep 0.3; done; echo x >> ~/orphan; exit 6"


async def test_signals_show_as_a_shell_shows_them(shell: Shell) -> None:
    assert (await shell.run("kill -SEGV $$")).code == 139
    assert (await shell.run("kill $$")).code == 143


async def test_messages_name_the_lines_of_the_command(shell: Shell) -> None:
    result = await shell.run("true\nnothing-such")
    assert result == (EXITED, 127, b"bash: line 2: nothing-such: command not found\n")


async def test_tracing_shows_only_the_command(shell: Shell) -> None:
    assert await shell.text("set -x\ntrue") == "++ true"


async def test_standard_input(shell: Shell) -> None:
    assert await shell.text("wc -c", stdin=b"x" * 300_000) == "300000"
    assert await shell.text("cat; echo end") == "end"


async def test_binary_output(shell: Shell) -> None:
    assert (await shell.run(r"printf '\377\000\n'")).output == b"\xff\0\n"


async def test_ten_megabytes_and_windows_of_them(shell: Shell) -> None:
    job = shell.job("seq -f '%09.0f' 1000000")
    await shell.sandbox.start(job)
    assert len((await shell.ended(job.key)).output) == 10_000_000
    assert await shell.sandbox.output(job.key, 9_999_980) == b"000999999\n001000000\n"
    assert await shell.sandbox.output(job.key, 10, 10) == b"000000002\n"


async def test_output_limit_is_exact(shell: Shell) -> None:
    result = await shell.run("yes", max_output=1_000_000)
    assert (result.state, result.code, len(result.output)) == (JobState.OUTPUT_LIMIT, 137, 1_000_000)


async def test_output_limit_holds_for_a_command_that_ends_before_anybody_looks(shell: Shell) -> None:
    result = await shell.run(f"(exec -a idler-{OURS} sleep 997) & printf %01001d", max_output=1_000)
    assert (result.state, result.code, len(result.output)) == (JobState.OUTPUT_LIMIT, 137, 1_000)
    gone = f"while pgrep -f '^idler-{OURS} '; do sleep 0.05; done; echo gone"
    assert (await shell.text(gone)).endswith("gone")


async def test_output_limit_holds_after_a_silence(shell: Shell) -> None:
    result = await shell.run("sleep 0.5; yes", max_output=1_000)
    assert (result.state, len(result.output)) == (JobState.OUTPUT_LIMIT, 1_000)


async def test_background_writer_is_ended_at_the_cap(shell: Shell) -> None:
    assert (await shell.run(f"(sleep 0.3; exec -a babbler-{OURS} yes) &", max_output=100_000)).code == 0
    gone = f"while pgrep -f '^babbler-{OURS} '; do sleep 0.05; done; echo gone"
    assert (await shell.text(gone)).endswith("gone")


async def test_timeout_ends_the_tree_and_nothing_else(shell: Shell) -> None:
    await shell.run(f"sleep 998.{OURS} >/dev/null 2>&1 &")
    script = f"""echo a; setsid sleep 991.{OURS} & env -i setsid sleep 992.{OURS} &
        (setsid sh -c 'trap "" TERM; sleep 993.{OURS}; sleep 994.{OURS}' &) &
        trap "" TERM; while :; do :; done"""
    assert (await shell.timed_out(script, 0.5, b"a\n")).output == b"a\n"
    ours = f"ps ax -o args | grep '^sleep 99[0-9][.]{OURS}$'"
    left = f"until [ \"$({ours})\" = 'sleep 998.{OURS}' ]; do sleep 0.05; done; echo it"
    assert await shell.text(left) == "it"
    await shell.run(f"pkill -f 'sleep 998[.]{OURS}'")


async def test_command_that_heeds_sigterm_has_time_to(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clotho.sandbox.supervised.staged.GRACE_MS", round(PATIENCE_SECONDS * 500))
    script = "trap 'sleep 0.3; echo tidied; exit' TERM; echo ready; sleep 1000 & wait"
    assert (await shell.timed_out(script, 0.2, b"ready\n")).output == b"ready\ntidied\n"


async def test_kill(shell: Shell) -> None:
    job = shell.job("echo a; sleep 995")
    await shell.sandbox.start(job)
    await shell.output_contains(job.key, b"a")
    await shell.sandbox.kill(job.key)
    assert await shell.ended(job.key) == (JobState.KILLED, 137, b"a\n")


async def test_killed_before_it_began_it_never_starts(shell: Shell) -> None:
    job = shell.job("echo ran >> ~/never")
    await asyncio.gather(*(shell.sandbox.kill(job.key) for _ in range(4)))
    await shell.sandbox.start(job)
    assert await shell.ended(job.key) == (JobState.KILLED, 137, b"")
    assert await shell.text("ls ~/never 2>/dev/null") == ""


async def test_kill_after_the_end_changes_nothing(shell: Shell) -> None:
    job = shell.job("exit 3")
    await shell.sandbox.start(job)
    result = await shell.ended(job.key)
    await shell.sandbox.kill(job.key)
    assert await shell.ended(job.key) == result


async def test_callers_that_fill_the_loops_threads_are_served(shell: Shell) -> None:
    """A synchronous caller waits in a thread of the loop's pool for a coroutine on the loop."""
    loop = asyncio.get_running_loop()

    def caller() -> object:
        return asyncio.run_coroutine_threadsafe(shell.run("exit 2"), loop).result(PATIENCE_SECONDS)

    results = await asyncio.gather(*(asyncio.to_thread(caller) for _ in range(40)))
    assert set(results) == {(EXITED, 2, b"")}


async def test_background_processes_die_by_the_key_of_their_command(shell: Shell) -> None:
    job = shell.job(f"setsid sleep 996.{OURS} >/dev/null 2>&1 & echo started")
    found = f"pgrep -f '^sleep 996[.]{OURS}' >/dev/null"
    await shell.sandbox.start(job)
    assert (await shell.ended(job.key)).code == 0
    assert await shell.text(f"until {found}; do sleep 0.01; done; echo runs") == "runs"
    await shell.sandbox.kill(job.key)
    assert await shell.text(f"while {found}; do sleep 0.01; done; echo gone") == "gone"


async def test_no_descriptor_leaks_into_commands(shell: Shell) -> None:
    assert await shell.text("ls /proc/self/fd | xargs") == "0 1 2 3"
    assert await shell.text("(exec python3 -c 'import os; print(os.listdir(\"/proc/self/fd\"))')") == (
        "['0', '1', '2', '3']"
    )


async def test_idle_supervisor_sleeps(shell: Shell) -> None:
    """A silent job must not cost its host a wake-up every few milliseconds."""
    job = shell.job("sleep 1000", session="idle")
    await shell.sandbox.start(job)
    supervisor = lock_holder(shell.control.alive_file)

    def switches() -> int:
        status = Path(f"/proc/{supervisor}/status").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)

    async def sleeps() -> bool:
        before = switches()
        await asyncio.sleep(0.5)
        return switches() - before < 5

    await until(sleeps)
    await shell.sandbox.kill(job.key)
