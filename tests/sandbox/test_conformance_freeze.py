import asyncio
import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from clotho.errors import SandboxLost
from clotho.sandbox.backend import JobState
from clotho.sandbox.checkpoints import Checkpoint
from clotho.sandbox.supervised.transfers import Transfers
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell, until

TICKING = "while :; do date +%N > {name}; sleep 0.01; done"


async def ticks(shell: Shell, name: str = "tick") -> bool:
    before = (await shell.sandbox.read_file(name, 100)).content
    await asyncio.sleep(0.15)
    return (await shell.sandbox.read_file(name, 100)).content != before


async def start_ticking(shell: Shell, name: str = "tick") -> str:
    job = shell.job(TICKING.format(name=name), session=name)
    await shell.sandbox.start(job)

    async def begun() -> bool:
        return (await shell.sandbox.read_file(name, 100)).error is None

    await until(begun)
    return job.key


async def test_all_commands_stop_and_go_on(own: Shell) -> None:
    await start_ticking(own)
    await own.run(f"(setsid sh -c '{TICKING.format(name='escaped')}' > /dev/null 2>&1 &)")
    await own.sandbox.freeze(30)
    assert not await ticks(own)
    assert not await ticks(own, "escaped")
    later = own.job("echo later")
    await own.sandbox.start(later)
    await asyncio.sleep(0.1)
    assert await own.sandbox.output(later.key) == b""
    await own.sandbox.thaw()
    assert (await own.ended(later.key)).output == b"later\n"
    await until(partial(ticks, own))
    await until(partial(ticks, own, "escaped"))


async def test_nobody_has_to_thaw(own: Shell) -> None:
    await start_ticking(own)
    began = time.monotonic()
    await own.sandbox.freeze(0.5)
    assert not await ticks(own)
    assert (await own.run("true")).code == 0
    assert 0.4 < time.monotonic() - began < 5
    await until(partial(ticks, own))


async def test_what_was_stopped_stays_stopped(own: Shell, copies: Copies) -> None:
    await start_ticking(own)
    stopped = await start_ticking(own, "stopped")
    status = await own.sandbox.wait(stopped, 0)
    await own.run(f"kill -STOP {status.pid}")
    assert isinstance(await own.sandbox.checkpoint(copies.blob), Checkpoint)
    await until(partial(ticks, own))
    assert not await ticks(own, "stopped")
    await own.run(f"kill -CONT {status.pid}")
    await until(partial(ticks, own, "stopped"))


async def test_time_in_the_ice_does_not_count(own: Shell) -> None:
    job = own.job("sleep 60", timeout=0.7)
    await own.sandbox.start(job)
    await own.sandbox.freeze(30)
    await asyncio.sleep(1)
    assert (await own.sandbox.wait(job.key, 0)).state is JobState.RUNNING
    await own.sandbox.thaw()
    assert (await own.ended(job.key)).state is JobState.TIMEOUT


async def test_kill_and_seal_of_frozen_commands(own: Shell) -> None:
    key = await start_ticking(own)
    await own.sandbox.freeze(30)
    await own.sandbox.kill(key)
    await own.sandbox.thaw()
    assert (await own.ended(key)).state is JobState.KILLED
    await start_ticking(own, "again")
    await own.sandbox.freeze(30)
    own.sandbox.control.say("seal")

    async def sealed() -> bool:
        return own.sandbox.control.sealed()

    await until(sealed)


async def test_shell_with_job_control_notices_nothing(own: Shell, copies: Copies) -> None:
    job = own.job("exec bash --norc -i", session="interactive", pty=True)
    await own.sandbox.start(job)
    await own.sandbox.send_input(job.key, b"PS1=; sleep 0.7; echo slept $?\n")
    await own.output_contains(job.key, b"PS1=")
    for _ in range(5):
        assert isinstance(await own.sandbox.checkpoint(copies.blob), Checkpoint)
        await asyncio.sleep(0.05)
    await own.output_contains(job.key, b"slept 0")
    assert b"Stopped" not in await own.sandbox.output(job.key)


async def test_processes_that_come_and_go_are_all_stopped(own: Shell, copies: Copies) -> None:
    """Among them such as are being started by vfork(2)."""
    storm = (
        "import subprocess\nwhile True: subprocess.run(['sh', '-c', 'date +%N > tick; (true; true) | true'])"
    )
    await own.sandbox.write_file("storm.py", storm.encode())
    for _ in range(3):
        await own.sandbox.start(own.job("exec python3 storm.py", session="storm"))
    for _ in range(10):
        await own.sandbox.freeze(30)
        assert not await ticks(own)
        await own.sandbox.thaw()


async def test_archive_that_nobody_reads_ends_by_itself(own: Shell) -> None:
    """As when the worker is stopped in the middle."""
    await own.run("head -c 3M /dev/urandom > large; mkdir closed; touch closed/x; chmod 000 closed")
    await start_ticking(own)
    key, control = "0" * 32, own.sandbox.control
    Transfers(control).stage_archive(key, "pack", {"timeout_ms": "400"}, {"work": own.sandbox.workspace})
    stream = os.open(Transfers(control).folder(key) / "stream", os.O_RDONLY | os.O_NONBLOCK)
    control.say("file", key)

    async def writing() -> bool:
        try:
            return bool(os.read(stream, 1))
        except BlockingIOError:
            return False

    await until(writing)
    assert not Transfers(control).answer(key)
    assert (await own.run("true")).code == 0, "waits for the thaw"
    answer = Transfers(control).answer(key)
    assert answer is not None
    assert answer[0] == "too_slow"
    await until(partial(ticks, own))
    assert await own.text("stat -c %a closed") == "0"
    os.close(stream)


async def test_file_that_shrinks_fails_the_archive(own: Shell, kind: str) -> None:
    """Commands can't: but a verifier's could, or other processes of the host where there is no isolation."""
    await own.run("head -c 3M /dev/urandom > large")
    key, control = "0" * 32, own.sandbox.control
    Transfers(control).stage_archive(key, "pack", {}, {"work": own.sandbox.workspace})
    stream = os.open(Transfers(control).folder(key) / "stream", os.O_RDONLY | os.O_NONBLOCK)
    control.say("file", key)
    files = control.path.parents[2] / "sandboxes" / control.path.parent.name / "disk" / "work"
    workspace = files if kind == "local" else Path(own.sandbox.workspace)

    async def writing() -> bool:
        try:
            return bool(os.read(stream, 1))
        except BlockingIOError:
            return False

    await until(writing)
    os.truncate(workspace / "large", 5)

    async def answered() -> bool:
        with suppress(BlockingIOError):
            os.read(stream, 1 << 20)
        return Transfers(control).answer(key) is not None

    await until(answered)
    answer = Transfers(control).answer(key)
    assert answer is not None
    assert answer[0] == "changed"
    os.close(stream)


@pytest.mark.parametrize("verb", ["freeze", "thaw"])
async def test_needs_a_living_supervisor(own: Shell, verb: str) -> None:
    own.sandbox.control.say("stop")

    async def gone() -> bool:
        return own.sandbox.control.incarnation() is None

    await until(gone)
    with pytest.raises(SandboxLost):
        await (own.sandbox.freeze(1) if verb == "freeze" else own.sandbox.thaw())
