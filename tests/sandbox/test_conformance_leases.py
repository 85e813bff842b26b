import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from clotho.errors import InvalidInput, SandboxLost, SandboxUnavailable
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.records import RelayFolder
from clotho.plugins.ssh.remote.instance import RemoteInstance
from clotho.sandbox.backend import JobState, Labels, SandboxSpec
from clotho.sandbox.supervised.folders import GRACE_SECONDS
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.launch import lock_holder
from tests.sandbox.backends import Backend
from tests.sandbox.conftest import BACKENDS, SPECS, closed
from tests.sandbox.shell import Shell, until
from tests.support import PATIENCE_SECONDS

WAITING = 12
"""Jobs whose waiters all write how they ended beside the deletion of their sandbox."""


async def held(backend: Backend) -> set[str]:
    return {record.lease for record in await backend.leases()}


async def create(backend: Backend, lease: str, spec: SandboxSpec) -> SupervisedSandbox | RemoteInstance:
    return await backend.create(lease, spec)


async def test_create_is_idempotent(backend: Backend, own: Shell, spec: SandboxSpec, lease: str) -> None:
    await own.run("echo kept > file")
    again = await asyncio.gather(*(create(backend, lease, spec) for _ in range(4)))
    assert {sandbox.incarnation for sandbox in again} == {own.sandbox.incarnation}
    assert await Shell(again[0]).text("cat file") == "kept"


async def test_racing_creations_make_one(backend: Backend, spec: SandboxSpec, lease: str) -> None:
    made = await asyncio.gather(*(create(backend, lease, spec) for _ in range(4)))
    await backend.destroy(lease)
    assert len({sandbox.incarnation for sandbox in made}) == 1


async def test_attach(backend: Backend, own: Shell, lease: str) -> None:
    found = await backend.attach(lease, own.sandbox.incarnation)
    assert await Shell(found).text("echo there") == "there"
    with pytest.raises(SandboxLost):
        await backend.attach(lease, "0" * 16)
    with pytest.raises(SandboxLost):
        await backend.attach("nobody/lease/0", own.sandbox.incarnation)


async def test_sandbox_outlives_the_worker_that_made_it(backend: Backend, kind: str, folder: Path) -> None:
    maker = f"""
import asyncio, os, signal
from pathlib import Path
from tests.sandbox.conftest import BACKENDS, SPECS, closed, be_patient
from tests.sandbox.shell import Shell
be_patient()
async def main():
    backend = BACKENDS[{kind!r}](Path({str(folder)!r}) / "sandboxes-{kind}")
    shell = Shell(await backend.create("orphan/lease/0", SPECS[{kind!r}]))
    await shell.run("echo made > file", name="made")
    print(shell.sandbox.incarnation, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    made = subprocess.run([sys.executable, "-c", maker], capture_output=True, text=True)
    assert made.returncode == -signal.SIGKILL, made.stderr
    sandbox = await backend.attach("orphan/lease/0", made.stdout.strip())
    assert (await Shell(sandbox).run("echo made > file", name="made")).code == 0
    assert await Shell(sandbox).text("cat file", name="read") == "made"
    await backend.destroy("orphan/lease/0")
    with pytest.raises(SandboxLost):
        await backend.attach("orphan/lease/0", made.stdout.strip())


async def test_leases(backend: Backend, own: Shell, lease: str) -> None:
    assert lease in await held(backend)
    await backend.destroy(lease)
    assert lease not in await held(backend)
    await backend.destroy(lease)


async def test_destroyed_sandbox_is_lost(backend: Backend, own: Shell, lease: str) -> None:
    jobs = [own.job("sleep 1000") for _ in range(WAITING)]
    await asyncio.gather(*map(own.sandbox.start, jobs))
    waiting = [asyncio.create_task(own.sandbox.wait(job.key, PATIENCE_SECONDS)) for job in jobs]
    await asyncio.sleep(0)
    await backend.destroy(lease)
    assert lease not in await held(backend)
    for each in waiting:
        # It may meet folders that are half gone: an outage, after which it is asked again.
        with suppress(SandboxLost, SandboxUnavailable):
            assert (await each).state is JobState.LOST
    with pytest.raises(SandboxLost):
        await own.run("true")
    with pytest.raises(SandboxLost):
        await own.sandbox.read_file("x", 1)
    with pytest.raises(SandboxLost):
        await own.sandbox.write_file("x", b"")
    with pytest.raises(SandboxLost):
        await own.sandbox.renew(60)
    with pytest.raises(SandboxLost):
        await backend.renew(lease, 60)


@pytest.mark.needs("host_files")
async def test_command_of_a_dead_supervisor_is_lost_and_never_run_again(
    backend: Backend, own: Shell, spec: SandboxSpec, lease: str
) -> None:
    job = own.job("echo part; sleep 1000")
    await own.sandbox.start(job)
    await own.output_contains(job.key, b"part\n")
    waiting = asyncio.create_task(own.sandbox.wait(job.key, PATIENCE_SECONDS))
    supervisor = lock_holder(own.control.alive_file)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    assert (await waiting).state is JobState.LOST
    assert await own.sandbox.output(job.key) == b"part\n"
    await own.sandbox.start(job)
    assert (await own.sandbox.wait(job.key, PATIENCE_SECONDS)).state is JobState.LOST
    with pytest.raises(SandboxLost):
        await own.run("true")
    again = await backend.create(lease, spec)
    assert again.incarnation != own.sandbox.incarnation
    assert (await again.wait(job.key, 0)).state is JobState.ABSENT


async def test_lease_is_renewed_and_expires_with_nobody_there(
    backend: Backend, spec: SandboxSpec, lease: str
) -> None:
    """Where the sandbox can't be made and its lease renewed in time, both are longer."""
    for seconds in (1, 8, 64):
        short = spec.model_copy(update={"lease_seconds": seconds})
        began = time.monotonic()
        try:
            sandbox = await backend.create(lease, short)
            renewed = time.monotonic()
            await backend.renew(lease, 2 * seconds)
        except (SandboxLost, SandboxUnavailable):
            assert time.monotonic() - began >= seconds
        if time.monotonic() - began < seconds:
            break
        await backend.destroy(lease)
    else:
        raise AssertionError("it was never renewed in time")

    async def gone() -> bool:
        try:
            attached = await backend.attach(lease, sandbox.incarnation)
        except SandboxLost:
            return True
        assert attached.incarnation == sandbox.incarnation
        return False

    await until(gone)
    assert time.monotonic() - renewed > 1.9 * seconds
    assert lease in await held(backend), "its files stay until the host's own deadline"
    await backend.destroy(lease)


async def test_host_reaps_what_outlives_its_lease(
    backend: Backend, own: Shell, spec: SandboxSpec, lease: str
) -> None:
    """A supervisor that is stopped from outside can't end by itself."""
    supervisor = lock_holder(own.control.alive_file)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGSTOP)
    assert not await backend.reap()
    past = time.time() - GRACE_SECONDS - 1
    control = own.control.path
    if isinstance(backend, RelayedBackend):
        os.utime(RelayFolder.of_lease(backend._root, lease).files / "deadline", (past, past))
    else:
        os.utime(control / "deadline", (past, past))
    if (files := control.parents[2] / "sandboxes" / control.parent.name).exists():  # the local backend's
        os.utime(files, (past, past))
    assert len(await backend.reap()) == 1
    assert lease not in await held(backend)


async def test_thousand_waiters_cost_no_thread(shell: Shell) -> None:
    job = shell.job("sleep 0.5; exit 4")
    await shell.sandbox.start(job)
    results = await asyncio.gather(*(shell.sandbox.wait(job.key, PATIENCE_SECONDS) for _ in range(300)))
    assert {status.exit_code for status in results} == {4}


def test_loops_come_and_go(kind: str, folder: Path) -> None:
    backend = BACKENDS[kind](folder / f"sandboxes-{kind}")

    async def once() -> str:
        try:
            return await Shell(await backend.create("loops/lease/0", SPECS[kind])).text("echo hello")
        finally:
            await closed(backend)

    def inotify_descriptors() -> int:
        gc.collect()
        found = 0
        for path in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # another thread closes files meanwhile
                found += "inotify" in os.readlink(path)
        return found

    before = inotify_descriptors()
    with ThreadPoolExecutor(1) as other_thread:
        for _ in range(3):
            assert other_thread.submit(lambda: asyncio.run(once())).result() == "hello"

    async def cleared() -> None:
        await backend.destroy("loops/lease/0")
        await closed(backend)

    asyncio.run(cleared())
    assert inotify_descriptors() == before


async def test_labels_tell_whose_it_is(backend: Backend, spec: SandboxSpec, lease: str) -> None:
    ours = Labels(store="file:/store", cluster="localhost:7233", namespace="default", rollout="run/g0/r0")
    began = time.time()
    made = await backend.create(lease, spec, labels=ours)
    (held_one,) = [record for record in await backend.leases() if record.lease == lease]
    assert held_one.labels == ours
    assert began - 1 <= held_one.expires - spec.lease_seconds <= time.time() + 1
    began = time.time()
    await backend.renew(lease, 5000)
    (held_one,) = [record for record in await backend.leases() if record.lease == lease]
    assert began - 1 <= held_one.expires - 5000 <= time.time() + 1
    assert (await backend.create(lease, spec, labels=ours)).incarnation == made.incarnation
    with pytest.raises(InvalidInput, match="another"):
        await backend.create(lease, spec, labels=ours.model_copy(update={"store": "another"}))
    await backend.destroy(lease)


@pytest.mark.parametrize("other", [{"namespace": "another"}, {"cluster": "localhost:7234"}])
@pytest.mark.parametrize("taken_over_by", ["create", "attach", "open_verifier"])
async def test_it_is_the_namespaces_that_used_it_last_and_no_other_releases_it(
    backend: Backend, spec: SandboxSpec, lease: str, other: dict[str, str], taken_over_by: str
) -> None:
    first = Labels(store="file:/store", cluster="localhost:7233", namespace="default", rollout="run/g0/r0")
    second = first.model_copy(update=other)
    made = await backend.create(lease, spec, labels=first)
    match taken_over_by:
        case "create":
            await backend.create(lease, spec, labels=second)
        case "attach":
            await backend.attach(lease, made.incarnation, second)
        case "open_verifier":
            await backend.open_verifier(lease, 0, {}, second)
    await backend.destroy(lease, first)
    assert (await backend.attach(lease, made.incarnation)).incarnation == made.incarnation
    assert [held.labels for held in await backend.leases() if held.lease == lease] == [second]
    await backend.destroy(lease, second)
    with pytest.raises(SandboxLost):
        await backend.attach(lease, made.incarnation)
