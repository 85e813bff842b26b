"""What one sandbox does to others of its host, and to the worker: what they share is shared out or bounded."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.errors import SandboxUnavailable
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.local.cgroups import usable
from tests.processor_time import processor_seconds
from tests.sandbox.conftest import SPECS, needs_root
from tests.sandbox.shell import Shell, control_groups, until, until_true
from tests.support import PATIENCE_SECONDS

needs_groups = pytest.mark.skipif(not usable(), reason="this process can make no control groups")
SPINNERS, SECONDS = 100, 2.0
SPIN = "while :; do :; done"
HOG = f"""mkfifo go; for n in $(seq {SPINNERS}); do setsid sh -c ': < go; {SPIN}' & done
exec 3<> go; echo begun; wait"""
"""They spin once all are there: it would take them minutes to begin among those that do."""
BOUND_MB = 96
HELD_SECONDS = 60.0
SLOWED_SECONDS = 1.2
"""Of the 2 that 2 MiB take at 1 MiB a second; without a bound they take hundredths."""


@contextlib.asynccontextmanager
async def sandbox(local: LocalBackend, lease: str, spec: SandboxSpec) -> AsyncIterator[Shell]:
    shell = Shell(await local.create(lease, spec))
    try:
        yield shell
    finally:
        await local.destroy(lease)


@needs_root
@needs_groups
@pytest.mark.attack("neighbours", "processes that spin, each in a session of its own")
async def test_processors_are_shared_by_sandbox_not_by_process(
    isolated: Shell, local: LocalBackend, lease: str
) -> None:
    """A process beside 100 of another sandbox gets far more than one of those, however busy the machine is."""
    assert (await local.probe()).processors == "cgroup"
    async with sandbox(local, f"{lease}/hog", SPECS["local"]) as neighbour:
        spinning = neighbour.job(HOG, session="hog")
        own = isolated.job(f"echo begun; {SPIN}", session="own")
        for shell, job in ((neighbour, spinning), (isolated, own)):
            await shell.sandbox.start(job)
            await shell.output_contains(job.key, b"begun")
        our_group, their_group = group_of(isolated), group_of(neighbour)
        ours_before, theirs_before = seconds_of_group(our_group), seconds_of_group(their_group)
        await until_true(lambda: seconds_of_group(our_group) > ours_before + SECONDS)
        theirs = (seconds_of_group(their_group) - theirs_before) / SPINNERS
        ours = seconds_of_group(our_group) - ours_before
        await neighbour.sandbox.kill(spinning.key)
        await neighbour.ended(spinning.key)
    assert ours > 10 * theirs, (ours, theirs)


@needs_root
@needs_groups
async def test_disk_traffic_is_that_of_its_sandboxs_group(isolated: Shell) -> None:
    """It has a weight, for disks whose scheduler heeds one; a bound on the same group shows that it counts."""
    found = control_groups(f"{isolated.control.path.parent.name}-")
    bounds = [path for group in found if (path := group / "blkio.throttle.write_bps_device").exists()]
    if not bounds:
        pytest.skip("no control groups of version 1 for the traffic of disks")
    assert (bounds[0].parent / "blkio.bfq.weight").read_text().split()[-1] == "100"
    device = await isolated.text("stat -c %Hd:%Ld /work")
    write = "dd if=/dev/zero of=direct bs=256k count=8 oflag=direct conv=notrunc 2>/dev/null"

    async def is_quick() -> bool:
        return await seconds_of(isolated, write) < SLOWED_SECONDS

    await until(is_quick)
    bounds[0].write_text(f"{device} {1 << 20}")
    assert await seconds_of(isolated, write) > SLOWED_SECONDS


async def seconds_of(shell: Shell, script: str) -> float:
    begun = time.monotonic()
    assert (await shell.run(script)).code == 0
    return time.monotonic() - begun


def group_of(shell: Shell) -> Path:
    groups = control_groups(f"{shell.control.path.parent.name}-")
    (group,) = (group for group in groups if (group / "cpu.stat").exists())
    return group


def seconds_of_group(group: Path) -> float:
    """Of processor time that the processes of a sandbox have had."""
    return sum(map(seconds_of_process, map(int, (group / "cgroup.procs").read_text().split())))


def seconds_of_process(pid: int) -> float:
    """0 for one that has just ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return processor_seconds(pid)
    return 0.0


@needs_root
async def test_without_control_groups_sandboxes_come_behind_the_worker(
    folder: Path, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clotho.sandbox.local.cgroups.usable", lambda: ())
    local = LocalBackend(folder / "no-groups")
    assert (await local.probe()).processors == "nice"
    async with sandbox(local, lease, SandboxSpec(disk_mb=16)) as shell:
        assert await shell.text("nice; ps -o ni= -p 1 | tr -d ' '") == "5\n5"


@needs_root
@pytest.mark.attack("neighbours", "disks that together promise more than the host has")
async def test_disks_of_all_sandboxes_have_a_budget(folder: Path, lease: str) -> None:
    """Of two stores together: what doesn't fit isn't made, and no neighbour's verifier is short of it."""
    stores = [LocalBackend(folder / "budget" / name, disk_budget_mb=100) for name in ("a", "b")]
    spec, leases = SandboxSpec(disk_mb=16), [f"{lease}/{n}" for n in range(6)]
    made = await asyncio.gather(
        *(stores[n % 2].create(each, spec) for n, each in enumerate(leases)), return_exceptions=True
    )
    refused = [each for each in made if isinstance(each, SandboxUnavailable)]
    assert len(refused) == 3 and "no room for 32" in str(refused[0])
    held = [n for n, each in enumerate(made) if not isinstance(each, BaseException)]
    await stores[held[0] % 2].destroy(leases[held[0]])
    await stores[1].create(f"{lease}/later", spec)
    for n, each in enumerate(leases):
        await stores[n % 2].destroy(each)
    await stores[1].destroy(f"{lease}/later")


BUFFERS = {
    "TCP": """
listening = socket.socket(); listening.bind(("127.0.0.1", 0)); listening.listen(500)
for _ in range(300):
    a = socket.socket(); a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    a.connect(listening.getsockname()); held += [a, listening.accept()[0]]; a.setblocking(False)
    fill(a, lambda: a.send(bytes(65536)))""",
    "UDP": """
for _ in range(600):
    a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(("127.0.0.1", 0))
    a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20); held.append(a); a.setblocking(False)
    fill(a, lambda: a.sendto(bytes(60000), a.getsockname()), 8)""",
    "unix": """
for _ in range(600):
    a, b = socket.socketpair(); held += [a, b]
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20); a.setblocking(False)
    fill(a, lambda: a.send(bytes(65536)))""",
    "shared memory": """
libc = ctypes.CDLL(None, use_errno=True); libc.shmat.restype = ctypes.c_void_p
for _ in range(20):
    at = libc.shmat(libc.shmget(0, 32 << 20, 0o1600), None, 0)
    ctypes.memset(at, 1, 32 << 20); libc.shmdt(ctypes.c_void_p(at))""",
}
FILLING = """
import ctypes, resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
def fill(a, send, times=10**6):
    try:
        for _ in range(times): send()
    except OSError: pass
"""


@needs_root
@needs_groups
@pytest.mark.attack("neighbours", "memory of the kernel's: buffers of sockets, System V segments")
@pytest.mark.parametrize("kind", BUFFERS)
async def test_memory_of_the_kernel_is_charged(local: LocalBackend, lease: str, kind: str) -> None:
    """Without a bound these hold more than a gigabyte."""
    script = f"python3 - <<'E'\n{FILLING}{BUFFERS[kind]}\nprint('filled', flush=True)\ntime.sleep(600)\nE"
    async with sandbox(local, lease, SPECS["local"].model_copy(update={"memory_mb": BOUND_MB})) as shell:
        job = shell.job(script, session="fill")
        await shell.sandbox.start(job)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while b"filled" not in await shell.sandbox.output(job.key):
                if (await shell.sandbox.wait(job.key, 0.05)).state != "running":
                    return  # the kernel has ended it
        # Others of the machine may have filled theirs: what this one holds, it holds as long as it runs.
        await until_true(lambda: buffers_mb() < 2 * BOUND_MB, HELD_SECONDS)


def buffers_mb() -> int:
    """Of all sockets of the machine: the kernel counts them together."""
    lines = (line.split() for line in Path("/proc/net/sockstat").read_text().splitlines())
    return sum(int(line[line.index("mem") + 1]) for line in lines if "mem" in line) << 2 >> 10
