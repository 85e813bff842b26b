"""The resource that a command ran out of is told with its result."""

import asyncio
from pathlib import Path

import pytest

from clotho.errors import SandboxLost
from clotho.sandbox.backend import JobState
from clotho.sandbox.local.cgroups import usable
from clotho.sandbox.supervised.launch import lock_holder
from tests.sandbox.conftest import Fresh, needs_root
from tests.sandbox.shell import Shell, until
from tests.sandbox.tool_calls import Calls
from tests.support import PATIENCE_SECONDS, eventually

needs_groups = pytest.mark.skipif(not usable(), reason="this process can make no control groups")
HOG = "python3 -c 'x = bytearray(1 << 30)'"
HOGS = "for n in 1 2 3; do python3 -c 'import time; x = bytearray(30 << 20); time.sleep(1000)' & done; wait"
"""No one of them is so large that the kernel would take it first, whatever it is told."""


async def exhausted(shell: Shell, script: str, name: str) -> tuple[int | None, str | None]:
    job = shell.job(script, name=name)
    await shell.sandbox.start(job)
    status = await shell.sandbox.wait(job.key, PATIENCE_SECONDS)
    assert status.state is not JobState.RUNNING
    return status.exit_code, status.exhausted


@needs_groups
async def test_memory(fresh: Fresh) -> None:
    shell = await fresh(memory_mb=64)
    assert await exhausted(shell, "exit 3", "before") == (3, None)
    assert await exhausted(shell, HOG, "hog") == (137, "memory")
    assert await exhausted(shell, f"{HOG}; true", "survived") == (0, None)
    assert await exhausted(shell, "exit 3", "after") == (3, None)
    assert await exhausted(shell, HOG, "hog") == (137, "memory"), "found again"
    assert await exhausted(shell, "exit 3", "before") == (3, None), "it was not that one"


@needs_root
async def test_disk(fresh: Fresh) -> None:
    shell = await fresh(disk_mb=16)
    assert await exhausted(shell, "head -c 1G /dev/zero > fill", "fill") == (1, "disk")
    assert await exhausted(shell, "rm fill", "free") == (0, None)
    assert await exhausted(shell, "exit 5", "after") == (5, None)
    many = "mkdir many; cd many; for n in $(seq 99999); do : > $n || exit 1; done"
    assert await exhausted(shell, many, "many") == (1, "disk")


async def test_largest_file(fresh: Fresh) -> None:
    shell = await fresh(disk_mb=16)
    assert await exhausted(shell, "truncate -s 1G large", "large") == (153, "disk")


@needs_groups
async def test_processes(fresh: Fresh) -> None:
    shell = await fresh(max_processes=40)
    bomb = "python3 -c 'import os, time\nfor n in range(100):\n    if os.fork() == 0: time.sleep(1000)'"
    assert await exhausted(shell, bomb, "bomb") == (1, "processes")
    assert await exhausted(shell, "exit 3", "after") == (3, None)


@needs_root
async def test_output_of_commands_fills_no_more_than_their_sandbox(fresh: Fresh) -> None:
    """One that has no room for another command's is lost, by their doing."""
    shell = await fresh(disk_mb=300)
    printed = await shell.run("exec head -c 10G /dev/zero")
    assert (printed.state, len(printed.output)) == (JobState.OUTPUT_LIMIT, 50_000_000)
    for number in range(6):
        await shell.sandbox.start(shell.job("sleep 0.5; head -c 45M /dev/zero", session=f"proc_{number}"))

    async def lost() -> str | None:
        try:
            await shell.run("true")
        except SandboxLost as lost:
            return lost.exhausted
        return None

    assert await eventually(lost, "the loss of the sandbox") == "disk"


@needs_groups
async def test_the_model_is_told_what_its_command_ran_out_of(fresh: Fresh) -> None:
    call = Calls((await fresh(memory_mb=64, disk_mb=16)).sandbox)
    killed = await call("terminal", command=f"echo before; {HOG}")
    assert killed["exit_code"] == 137
    assert killed["output"].startswith("before\n") and "ran out of memory" in killed["output"]
    assert "exit_code_meaning" not in killed, "a guess beside what is known"
    full = await call("terminal", command="head -c 1G /dev/zero > fill")
    assert full["exit_code"] == 1 and "disk is full" in full["output"]
    assert "ran out" not in (await call("terminal", command="rm fill; exit 3"))["output"]
    session = (await call("terminal", command=HOG, background=True))["session_id"]
    waited = await call("process", action="wait", session_id=session, timeout=round(PATIENCE_SECONDS))
    assert waited["exit_code"] == 137 and "ran out of memory" in waited["note"]
    polled = await call("process", action="poll", session_id=session)
    assert polled["note"] == waited["note"]


@needs_groups
@needs_root
async def test_a_sandbox_that_memory_ends(fresh: Fresh) -> None:
    """Its supervisor is what the kernel kills: the command is lost, for that reason."""
    shell = await fresh(memory_mb=64)
    sandbox = shell.sandbox
    call, supervisor = Calls(sandbox), lock_holder(shell.control.alive_file)
    command = (
        f"echo 0 > /proc/self/oom_score_adj; touch waiting; while [ ! -e go ]; do sleep 0.05; done; {HOGS}"
    )
    made = asyncio.create_task(call("terminal", command=command))

    async def waiting() -> bool:
        return (await sandbox.read_file("waiting", 1)).error is None

    await until(waiting)
    Path(f"/proc/{supervisor}/oom_score_adj").write_text("1000")  # what is started later inherits it
    await sandbox.write_file("go", b"")
    with pytest.raises(SandboxLost, match="ran out of memory") as raised:
        await made
    assert raised.value.exhausted == "memory"
