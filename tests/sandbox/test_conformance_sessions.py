import asyncio
import signal
import time
from typing import Any

import pytest

from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import JobState, SandboxSpec
from tests.sandbox.backends import Backend
from tests.sandbox.shell import Shell


async def test_background_job_is_listed_with_its_process(shell: Shell) -> None:
    job, began = shell.job("echo hello; exec sleep 1000", session="proc_1"), time.time()
    await shell.sandbox.start(job)
    await shell.output_contains(job.key, b"hello")
    (session,) = [each for each in await shell.sandbox.sessions() if each.key == job.key]
    assert (session.session, session.script) == ("proc_1", "echo hello; exec sleep 1000")
    assert began - 1 <= session.started <= time.time() + 1
    assert session.status.state is JobState.RUNNING
    assert (await shell.sandbox.wait(job.key, 0)).pid == session.status.pid
    became = f"until [ $(cat /proc/{session.status.pid}/comm) = sleep ]; do sleep 0.01; done; echo sleep"
    assert await shell.text(became) == "sleep"
    await shell.sandbox.kill(job.key)
    assert (await shell.ended(job.key)).state is JobState.KILLED


async def test_input_is_delivered_in_order_and_closed(shell: Shell) -> None:
    job = shell.job("cat; echo end", session="cat")
    await shell.sandbox.start(job)
    await shell.sandbox.send_input(job.key, b"one\n")
    await shell.output_contains(job.key, b"one\n")
    for line in (b"two\n", b"three\n"):
        await shell.sandbox.send_input(job.key, line)
    await shell.sandbox.close_input(job.key)
    assert await shell.ended(job.key) == (JobState.EXITED, 0, b"one\ntwo\nthree\nend\n")


async def test_request_for_input_is_served_once(shell: Shell) -> None:
    job = shell.job("cat", session="once")
    await shell.sandbox.start(job)
    await asyncio.gather(*(shell.sandbox.send_input(job.key, b"x", job_key("request")) for _ in range(8)))
    await shell.sandbox.send_input(job.key, b"x", job_key("request"))
    await shell.sandbox.close_input(job.key)
    assert (await shell.ended(job.key)).output == b"x"


async def test_input_larger_than_a_pipe_waits_for_its_reader(shell: Shell) -> None:
    job = shell.job("sleep 0.3; wc -c", session="large")
    await shell.sandbox.start(job)
    await shell.sandbox.send_input(job.key, b"x" * 1_000_000)
    await shell.sandbox.close_input(job.key)
    assert (await shell.ended(job.key)).output == b"1000000\n"


async def test_input_for_a_job_that_reads_none_is_dropped(shell: Shell) -> None:
    job = shell.job("exec <&-; sleep 0.3; echo end", session="deaf")
    await shell.sandbox.start(job)
    await shell.sandbox.send_input(job.key, b"x" * 1_000_000)
    assert (await shell.ended(job.key)).output == b"end\n"
    await shell.sandbox.send_input(job.key, b"too late")
    await shell.sandbox.close_input(job.key)


async def test_terminal(shell: Shell) -> None:
    job = shell.job(
        "tty; stty size; read line; echo got $line; read rest || echo eof", session="pty", pty=True
    )
    await shell.sandbox.start(job)
    await shell.output_contains(job.key, b"24 80")
    await shell.sandbox.send_input(job.key, b"hello\n")
    await shell.output_contains(job.key, b"got hello")
    await shell.sandbox.close_input(job.key)
    result = await shell.ended(job.key)
    assert result.code == 0
    assert result.output.startswith(b"/dev/pts/")
    assert result.output.endswith(b"eof\r\n")


async def test_terminal_output_arrives_whole(shell: Shell) -> None:
    result = await shell.run("seq 20000", pty=True)
    assert result.output.decode().split() == [str(n) for n in range(1, 20001)]


async def test_control_characters_reach_the_foreground_of_a_terminal(shell: Shell) -> None:
    # No child in the loop: one that happens to exit just then makes bash take the interrupt for the child's.
    job = shell.job("trap 'exit 9' INT; echo ready; while :; do :; done", session="int", pty=True)
    await shell.sandbox.start(job)
    await shell.output_contains(job.key, b"ready")
    await shell.sandbox.send_input(job.key, b"\x03")
    assert (await shell.ended(job.key)).code == 9


async def test_commands_take_signals_that_the_worker_ignores(
    backend: Backend, spec: SandboxSpec, lease: str
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in what a script starts in its background
    try:
        shell = Shell(await backend.create(lease, spec))
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert (await shell.run("trap 'exit 9' INT; kill -INT $$; exit 1")).code == 9
    finally:
        await backend.destroy(lease)


async def test_foreground_job_can_have_a_terminal(shell: Shell) -> None:
    assert await shell.text("test -t 0 && test -t 1 && echo terminal", pty=True) == "terminal"


@pytest.mark.parametrize(
    "given", [{"stdin": b"given\n"}, {"session": "pipe"}, {"session": "pty", "pty": True}]
)
async def test_what_is_open_can_be_opened_again(shell: Shell, given: dict[str, Any]) -> None:
    """Scripts do so that write to /dev/stderr and read /dev/stdin."""
    job = shell.job("read line < /dev/stdin; echo $line >> /dev/stdout; echo told >> /dev/stderr", **given)
    await shell.sandbox.start(job)
    if job.session is not None:
        await shell.sandbox.send_input(job.key, b"given\n")
    assert (await shell.ended(job.key)).output.decode().split()[-2:] == ["given", "told"]
