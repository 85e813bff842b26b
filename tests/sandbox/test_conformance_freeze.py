import asyncio
import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from clotho.sandbox.backend import JobState
from clotho.sandbox.checkpoints import Checkpoint
from clotho.sandbox.supervised.transfers import Transfers
from tests.sandbox.copies import Copies
from tests.sandbox.shell import Shell, until

pytestmark = pytest.mark.needs("same_process")
"""These tests speak to the supervisor themselves."""

TICKING = "while :; do date +%N > {name}; sleep 0.01; done"


def on_host(own: Shell, kind: str) -> Path:
    """The workspace as this process sees it: file verbs wait for an archive."""
    control = own.control.path
    local = control.parents[2] / "sandboxes" / control.parent.name / "disk" / "work"
    if kind in ("podman", "commit"):
        return control.parents[1] / "disk" / "work"
    return local if kind in ("local", "apptainer") else Path(own.sandbox.workspace)


def content(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


async def ticks(workspace: Path, name: str = "tick") -> bool:
    before = content(workspace / name)
    await asyncio.sleep(0.15)
    return content(workspace / name) != before


class HeldArchive:
    """An archive that nobody reads further than its first byte: all commands stand still until it is thawed."""

    def __init__(self, own: Shell, fields: Mapping[str, str]) -> None:
        self._own, self._key = own, uuid.uuid4().hex
        self._fields = {"timeout_ms": "600000", **fields}
        self._transfers = Transfers(own.control)
        self._stream = -1

    async def begin(self) -> None:
        await self._own.run("test -e large || head -c 3M /dev/urandom > large")
        self._transfers.stage_archive(self._key, "pack", self._fields, {"work": self._own.sandbox.workspace})
        self._stream = os.open(
            self._own.control.path / "f" / self._key / "stream", os.O_RDONLY | os.O_NONBLOCK
        )
        self._own.control.say("file", self._key)
        await until(self._begun)

    @property
    def answer(self) -> tuple[str, int, str] | None:
        return self._transfers.answer(self._key)

    async def thaw(self) -> None:
        """Read the rest of the archive."""
        await until(self._answered)
        os.close(self._stream)

    async def _begun(self) -> bool:
        """Its first byte has come, or its time was over before."""
        with suppress(BlockingIOError):
            if os.read(self._stream, 1):
                return True
        return self.answer is not None

    async def _answered(self) -> bool:
        with suppress(BlockingIOError):
            os.read(self._stream, 1 << 20)
        return self.answer is not None


async def freeze(own: Shell, **fields: str) -> HeldArchive:
    archive = HeldArchive(own, fields)
    await archive.begin()
    return archive


async def start_ticking(shell: Shell, name: str = "tick") -> str:
    job = shell.job(TICKING.format(name=name), session=name)
    await shell.sandbox.start(job)

    async def begun() -> bool:
        return (await shell.sandbox.read_file(name, 100)).error is None

    await until(begun)
    return job.key


async def test_all_commands_stop_and_go_on(own: Shell, kind: str) -> None:
    workspace = on_host(own, kind)
    await start_ticking(own)
    await own.run(f"(setsid sh -c '{TICKING.format(name='escaped')}' > /dev/null 2>&1 &)")
    archive = await freeze(own)
    assert not await ticks(workspace)
    assert not await ticks(workspace, "escaped")
    later = own.job("echo later")
    await own.sandbox.start(later)
    await asyncio.sleep(0.1)
    assert await own.sandbox.output(later.key) == b""
    await archive.thaw()
    assert (await own.ended(later.key)).output == b"later\n"
    await until(partial(ticks, workspace))
    await until(partial(ticks, workspace, "escaped"))


async def test_what_was_stopped_stays_stopped(own: Shell, copies: Copies, kind: str) -> None:
    workspace = on_host(own, kind)
    await start_ticking(own)
    stopped = await start_ticking(own, "stopped")
    status = await own.sandbox.wait(stopped, 0)
    await own.run(
        f"kill -STOP {status.pid}; until ps -o stat= -p {status.pid} | grep -q ^T; do sleep 0.01; done; "
        f"while ps -o stat= --ppid {status.pid} | grep -q '^[^Z]'; do sleep 0.01; done"
    )
    assert isinstance(await own.sandbox.checkpoint(copies.blob), Checkpoint)
    await until(partial(ticks, workspace))
    assert not await ticks(workspace, "stopped")
    await own.run(f"kill -CONT {status.pid}")
    await until(partial(ticks, workspace, "stopped"))


async def test_time_in_the_ice_does_not_count(own: Shell) -> None:
    for seconds in (0.7, 5, 40):  # one that may have been over before the freeze is followed by a longer one
        job = own.job("sleep 1000", timeout=seconds)
        began = time.monotonic()
        await own.sandbox.start(job)
        archive = await freeze(own)
        if time.monotonic() - began < seconds:
            break
        await archive.thaw()
    await asyncio.sleep(seconds + 0.3)
    assert (await own.sandbox.wait(job.key, 0)).state is JobState.RUNNING
    await archive.thaw()
    assert (await own.ended(job.key)).state is JobState.TIMEOUT


async def test_kill_and_seal_of_frozen_commands(own: Shell) -> None:
    key = await start_ticking(own)
    archive = await freeze(own)
    await own.sandbox.kill(key)
    await archive.thaw()
    assert (await own.ended(key)).state is JobState.KILLED
    await start_ticking(own, "again")
    await freeze(own)
    own.control.say("seal")

    async def sealed() -> bool:
        return own.control.sealed()

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


@pytest.mark.slow
async def test_processes_that_come_and_go_are_all_stopped(own: Shell, kind: str) -> None:
    """Among them such as are being started by vfork(2)."""
    storm = (
        "import subprocess\nwhile True: subprocess.run(['sh', '-c', 'date +%N > tick; (true; true) | true'])"
    )
    await own.sandbox.write_file("storm.py", storm.encode())
    for _ in range(3):
        await own.sandbox.start(own.job("exec python3 storm.py", session="storm"))
    workspace = on_host(own, kind)
    await until(partial(ticks, workspace))
    for _ in range(10):
        archive = await freeze(own)
        assert not await ticks(workspace)
        await archive.thaw()


async def test_archive_that_nobody_reads_ends_by_itself(own: Shell, kind: str) -> None:
    """The worker may be stopped in the middle."""
    await own.run("mkdir closed; touch closed/x; chmod 000 closed")
    await start_ticking(own)
    began = time.monotonic()
    archive = await freeze(own, timeout_ms="400")
    assert archive.answer is None or time.monotonic() - began >= 0.4
    assert (await own.run("true")).code == 0, "waits for the thaw"
    assert archive.answer is not None
    assert archive.answer[0] == "too_slow"
    await until(partial(ticks, on_host(own, kind)))
    assert await own.text("stat -c %a closed") == "0"


async def test_file_that_shrinks_fails_the_archive(own: Shell, kind: str) -> None:
    """Commands can't: but a verifier's could, or other processes of the host where there is no isolation."""
    archive = await freeze(own)
    os.truncate(on_host(own, kind) / "large", 5)
    await archive.thaw()
    assert archive.answer is not None
    assert archive.answer[0] == "changed"
