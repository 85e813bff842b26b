"""What a command ran out of is told with its result."""

import pytest

from clotho.sandbox.base import JobState
from clotho.sandbox.cgroups import usable
from tests.sandbox.conftest import Fresh, needs_root
from tests.sandbox.shell import Shell

needs_groups = pytest.mark.skipif(not usable(), reason="this process can make no control groups")
HOG = "python3 -c 'x = bytearray(1 << 30)'"


async def exhausted(shell: Shell, script: str, name: str) -> tuple[int | None, str | None]:
    job = shell.job(script, name=name)
    await shell.sandbox.start(job)
    status = await shell.sandbox.wait(job.key, 20)
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
    bomb = "python3 -c 'import os, time\nfor n in range(100):\n    if os.fork() == 0: time.sleep(30)'"
    assert await exhausted(shell, bomb, "bomb") == (1, "processes")
    assert await exhausted(shell, "exit 3", "after") == (3, None)


@needs_groups
async def test_sandbox_that_memory_ends(fresh: Fresh) -> None:
    """Its supervisor is killed: the command is lost, for that reason."""
    shell = await fresh(memory_mb=64)
    job = shell.job("echo 1000 > /proc/$PPID/oom_score_adj; sleep 0.3; " + HOG)
    await shell.sandbox.start(job)
    status = await shell.sandbox.wait(job.key, 20)
    assert status.exhausted == "memory"
