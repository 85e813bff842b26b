"""What a backend declares that it can tell of a sandbox that has ended: did its commands do that, or its host?"""

import os
import signal
from pathlib import Path

import pytest

from clotho.errors import SandboxLost
from clotho.sandbox.backend import JobState, SandboxSpec
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.supervised.launch import lock_holder
from tests.sandbox.backends import Backend
from tests.sandbox.shell import Shell, until
from tests.support import PATIENCE_SECONDS

HOGS = "for n in 1 2 3; do python3 -c 'import time; x = bytearray(30 << 20); time.sleep(1000)' & done; wait"
"""No one of them is so large that the kernel would take it first, whatever it is told."""
ISOLATED = ("local", "apptainer", "remote", "ssh")


async def require(backend: Backend, lease: str, way: Evidence) -> None:
    if way not in await backend.evidence(lease):
        pytest.skip(f"it declares no {way}")


async def test_what_is_declared(backend: Backend, own: Shell, lease: str, kind: str) -> None:
    declared = await backend.evidence(lease)
    assert (Evidence.SIGNALS in declared) == (kind in (*ISOLATED, "podman", "relay"))
    assert Evidence.MEMORY not in declared or kind in (*ISOLATED, "bare"), "engines and clouds keep no count"


async def test_a_sandbox_that_its_host_ended_ran_out_of_nothing(own: Shell) -> None:
    job = own.job("touch begun; sleep 1000")
    await own.sandbox.start(job)
    await begun(own)
    supervisor = lock_holder(own.control.alive_file)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    try:
        status = await own.sandbox.wait(job.key, PATIENCE_SECONDS)
    except SandboxLost as lost:  # a machine that has ended can't be asked what became of the command
        assert lost.exhausted is None
    else:
        assert (status.state, status.exhausted) == (JobState.LOST, None)


async def test_commands_signal_no_supervisor(backend: Backend, own: Shell, lease: str) -> None:
    await require(backend, lease, Evidence.SIGNALS)
    ended = await own.run("for each in KILL STOP TERM SEGV; do kill -$each -1; kill -$each 1; done")
    assert ended.state is not JobState.LOST
    assert await own.text("echo on") == "on"


async def test_memory_is_told_of_a_sandbox_that_has_ended(
    backend: Backend, spec: SandboxSpec, lease: str
) -> None:
    own = Shell(await backend.create(lease, spec.model_copy(update={"memory_mb": 64})))
    try:
        await require(backend, lease, Evidence.MEMORY)
        adjusted = "echo 0 > /proc/self/oom_score_adj; touch begun; while [ ! -e go ]; do sleep 0.05; done"
        job = own.job(f"{adjusted}; {HOGS}")
        await own.sandbox.start(job)
        await begun(own)
        alive = own.control.alive_file
        adjustment = Path(f"/proc/{lock_holder(alive)}/oom_score_adj")
        adjustment.write_text("1000")  # the kernel takes it first; what is started later inherits it
        await own.sandbox.write_file("go", b"")

        async def ended() -> bool:
            return lock_holder(alive) is None

        await until(ended)
        status = await own.sandbox.wait(job.key, PATIENCE_SECONDS)
        assert (status.state, status.exhausted) == (JobState.LOST, "memory")
    finally:
        await backend.destroy(lease)


async def begun(own: Shell) -> None:
    async def there() -> bool:
        return (await own.sandbox.read_file("begun", 1)).error is None

    await until(there)
