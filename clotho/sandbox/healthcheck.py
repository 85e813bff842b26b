"""The healthcheck of a new sandbox: a command that has to succeed before the agent's first one."""

import asyncio
import time
from collections.abc import Callable

from clotho.errors import SandboxLost, SandboxUnhealthy
from clotho.escaping import truncate_middle
from clotho.frozen_model import FrozenModel
from clotho.sandbox.backend import Job, JobState, JobStatus, SandboxInstance

SLICE_SECONDS = 2.0
COMMAND_CHARACTERS = 200


class Healthcheck(FrozenModel):
    """A probe, and how often it may fail; times in seconds."""

    command: str
    interval: float
    timeout: float
    start_period: float
    """While it lasts, failures don't count, and `start_interval` is the time between probes."""
    start_interval: float
    retries: int
    """Failures in a row by which the sandbox is unhealthy."""


async def until_healthy(sandbox: SandboxInstance, check: Healthcheck, key: Callable[[int], str]) -> None:
    """Probe until the command succeeds. `key` gives each probe's job key, so that a later attempt finds its result.

    Raises SandboxUnhealthy when the command has failed too often.
    """
    began, failures, number = time.monotonic(), 0, 0
    while True:
        starting = time.monotonic() - began < check.start_period
        status = await _probe(sandbox, check, key(number))
        if status.exit_code == 0:
            return
        number += 1
        failures += not starting
        if failures >= check.retries:
            command = truncate_middle(check.command, COMMAND_CHARACTERS)
            raise SandboxUnhealthy(
                f"the sandbox's healthcheck never passed: {command!r} failed {number} times, "
                f"at last with exit code {status.exit_code}"
            )
        await asyncio.sleep(check.start_interval if starting else check.interval)


async def _probe(sandbox: SandboxInstance, check: Healthcheck, key: str) -> JobStatus:
    await sandbox.start(Job(key=key, script=check.command, timeout=check.timeout))
    while (status := await sandbox.wait(key, SLICE_SECONDS)).state in (JobState.ABSENT, JobState.RUNNING):
        pass
    if status.state is JobState.LOST:
        cause = f", which ran out of {status.exhausted}" if status.exhausted else ""
        raise SandboxLost(f"the sandbox was lost while its healthcheck ran{cause}", status.exhausted)
    return status
