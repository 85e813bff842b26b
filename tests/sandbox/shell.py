"""Running commands in a sandbox under test."""

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from clotho.identifiers.ids import job_key
from clotho.plugins.containers.relay.control import RelayedControl
from clotho.plugins.ssh.remote.instance import RemoteInstance
from clotho.sandbox.backend import Job, JobState, SandboxInstance
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.instance import SupervisedSandbox
from tests.sandbox.engine_elsewhere import control_behind
from tests.sandbox.remote_host import control_of
from tests.support import PATIENCE_SECONDS

_runs = itertools.count()


def control_groups(name: str) -> list[Path]:
    """Those of a sandbox, whatever other groups come and go meanwhile."""
    folders = (Path(folder) for folder, _, _ in os.walk("/sys/fs/cgroup"))
    return [path for path in folders if path.parent.name == "clotho" and path.name.startswith(name)]


class Ended(NamedTuple):
    state: JobState
    code: int | None
    output: bytes


class Shell:
    def __init__(self, sandbox: SandboxInstance) -> None:
        self.sandbox = cast(SupervisedSandbox, sandbox)  # only tests of the local backend know it as one

    @property
    def control(self) -> ControlDirectory:
        """The supervisor's files, on this machine in any case."""
        sandbox: object = self.sandbox
        if isinstance(sandbox, RemoteInstance):
            return control_of(sandbox)
        if isinstance(self.sandbox.control, RelayedControl):
            return control_behind(self.sandbox.incarnation)
        return cast(ControlDirectory, self.sandbox.control)

    def job(self, script: str, name: str | None = None, **fields: Any) -> Job:
        return Job(key=job_key(name or f"run {next(_runs)}"), script=script, **fields)

    async def run(self, script: str, name: str | None = None, **fields: Any) -> Ended:
        job = self.job(script, name, **fields)
        await self.sandbox.start(job)
        return await self.ended(job.key)

    async def ended(self, key: str) -> Ended:
        status = await self.sandbox.wait(key, PATIENCE_SECONDS)
        assert status.state is not JobState.RUNNING, "still running"
        output = await self.sandbox.output(key)
        if status.exit_code is not None:
            assert len(output) == status.output_size
        return Ended(status.state, status.exit_code, output)

    async def text(self, script: str, **fields: Any) -> str:
        return (await self.run(script, **fields)).output.decode().strip()

    async def timed_out(self, script: str, seconds: float, begun: bytes) -> Ended:
        """The end of a command that prints `begun` before its time is over: where it can't, it has more time."""
        while True:
            ended = await self.run(script, timeout=seconds)
            assert (ended.state, ended.code) == (JobState.TIMEOUT, 124)
            if ended.output.startswith(begun):
                return ended
            seconds *= 4
            assert seconds < PATIENCE_SECONDS, "it never began"

    async def output_contains(self, key: str, wanted: bytes) -> None:
        async def there() -> bool:
            return wanted in await self.sandbox.output(key)

        await until(there)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


async def until_true(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    async def told() -> bool:
        return condition()

    await until(told, seconds)
