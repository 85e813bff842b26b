"""Faults around a local sandbox: processes killed at random, and disks that fill up."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote

import pytest

from clotho.errors import SandboxLost, SandboxUnavailable
from clotho.sandbox.backend import JobState, SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.local.processes import processes_of
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.launch import lock_holder
from clotho.sandbox.supervisor import supervisor_path
from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell
from tests.support import PATIENCE_SECONDS, eventually

ROUNDS = 60


@needs_root
async def test_random_kills_never_run_a_command_twice(isolated: Shell) -> None:
    """Keepers and commands are killed from outside at random, and attempts abandoned."""
    chance = random.Random(1)
    user = int(await isolated.text("id -u"))
    spared = {lock_holder(isolated.control.alive_file)}
    for number in range(ROUNDS):
        job = isolated.job(f"echo run >> c{number}; echo a; sleep 0.03; echo b; exit 7", timeout=60)
        attempts = [asyncio.create_task(isolated.run(job.script, job.key, timeout=60)) for _ in range(2)]
        await asyncio.sleep(chance.random() * 0.01)
        attempts[0].cancel()
        killed = chance.random() < 0.5 and await asyncio.to_thread(kill_one_of, user, spared, chance)
        result = await attempts[1]
        runs = (await isolated.text(f"cat c{number} 2>/dev/null")).split()
        assert len(runs) <= 1
        if not killed:
            assert result == (JobState.EXITED, 7, b"a\nb\n")
        if result.code == 7:
            assert runs == ["run"]
            assert result.output.endswith(b"b\n")


def kill_one_of(user: int, spared: set[int | None], chance: random.Random) -> bool:
    """Kill a process of the sandbox, except its supervisor and what is outside of its namespace."""
    inside = [
        int(path.name)
        for path in processes_of({user})
        if int(path.name) not in spared and len(namespace_pids(path)) > 1
    ]
    if not inside:
        return False
    try:
        os.kill(chance.choice(inside), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def namespace_pids(process: Path) -> list[str]:
    try:
        return (process / "status").read_text().split("NSpid:")[1].splitlines()[0].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


@pytest.fixture
def tiny(folder: Path) -> Iterator[Path]:
    """A file system of 1 MB for everything, the control directory too."""
    mount_point = folder / "tiny"
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=711", "tiny", str(mount_point)], check=True)
    yield mount_point
    subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


@needs_root
async def test_disk_of_the_host_fills_up_under_a_command(
    tiny: Path, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clotho.sandbox.local.disk.usable", lambda image, mount_point: False)
    backend = LocalBackend(tiny)
    assert (await backend.probe()).disk == "file size"
    shell = Shell(await backend.create(lease, SandboxSpec()))
    await shell.run("cd /usr; export A=1", name="before")
    result = await shell.run("cat /dev/zero > fill; echo $?; exit 9")
    assert (result.state, result.code) == (JobState.EXITED, 9)
    job = shell.job("echo later")
    with pytest.raises(SandboxUnavailable, match="full"):
        await shell.sandbox.start(job)
    assert not [name for name in os.listdir(shell.control.path / "c") if name.startswith(".")]
    (tiny / "sandboxes" / shell.control.path.parent.name / "disk" / "work" / "fill").unlink()
    await shell.sandbox.start(job)
    assert (await shell.ended(job.key)).output == b"later\n"
    await backend.destroy(lease)


@needs_root
async def test_worker_with_mounts_of_its_own_finds_sandboxes(
    isolated: Shell, folder: Path, lease: str
) -> None:
    """A service manager may give each start of a worker a mount namespace."""
    finder = f"""
import asyncio
from pathlib import Path
from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell
from tests.support import eventually
async def main():
    shell = Shell(await LocalBackend(Path({str(folder)!r}) / "sandboxes-local").attach(
        {lease!r}, {isolated.sandbox.incarnation!r}))
    print(await shell.text("cat made"))
asyncio.run(main())
"""
    await isolated.run("echo here > made")
    root = folder / "sandboxes-local"
    unmount = f"grep -o '{root}[^ ]*' /proc/mounts | xargs umount"
    command = f"{unmount} && exec {quote(sys.executable)} -c '{finder.replace(chr(39), chr(34))}'"
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--propagation", "private", "sh", "-c", command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert output == b"here\n", errors


@needs_root
async def test_smuggled_descriptors_fill_only_the_sandboxs_own_disks(isolated: Shell) -> None:
    """A command that writes to the output of one that has ended, where no cap is looked at any more."""
    victim = isolated.job("until [ -e stolen ]; do sleep 0.01; done; echo done")
    await isolated.sandbox.start(victim)
    thief = isolated.job("""
        while :; do
            for fd in /proc/[0-9]*/fd/1; do [ $fd -ef /proc/self/fd/1 ] || { exec 5>>$fd && break 2; }; done
            sleep 0.01
        done 2>/dev/null
        touch stolen; until [ -e ended ]; do sleep 0.01; done; head -c 250M /dev/zero >&5; echo wrote""")
    await isolated.sandbox.start(thief)
    await isolated.ended(victim.key)
    await isolated.sandbox.write_file("ended", b"")
    await isolated.ended(thief.key)
    assert (await isolated.sandbox.output(victim.key, 0, 5)) == b"done\n"
    used = await asyncio.to_thread(disk_usage, isolated.control.path)
    assert 100 < used <= 210
    assert (await isolated.sandbox.wait(victim.key, 0)).output_size == 5


def disk_usage(path: Path) -> int:
    """MB."""
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize >> 20


@needs_root
async def test_the_end_of_a_sandbox_leaves_its_namesake_of_another_backend_alone(
    isolated: Shell, lease: str, folder: Path
) -> None:
    """Two Clothos on one machine may run runs of the same name."""
    other = LocalBackend(folder / "sandboxes-of-another")
    await other.create(lease, SandboxSpec(disk_mb=200, memory_mb=512))
    await other.destroy(lease)
    assert await isolated.text("echo alive") == "alive"


async def test_a_sandbox_whose_host_dies_while_it_starts_is_found_by_the_next(tmp_path: Path) -> None:
    control = ControlDirectory(tmp_path / "control", None)
    control.create()
    directory = os.open(control.path, os.O_RDONLY)
    ready, tell = os.pipe()
    os.close(ready)  # by the kernel, when the host is killed
    command = [str(supervisor_path()), "serve", str(directory), str(tell), "600", "0", "0"]
    supervisor = await asyncio.create_subprocess_exec(*command, pass_fds=(directory, tell))

    async def serves() -> bool:
        with suppress(SandboxLost):
            control.say("lease", "600")
            return True
        return False

    await eventually(serves, "the supervisor's queue of requests")
    assert control.incarnation() is not None
    control.say("stop")
    assert await asyncio.wait_for(supervisor.wait(), PATIENCE_SECONDS) == 0
    os.close(directory)
    os.close(tell)
