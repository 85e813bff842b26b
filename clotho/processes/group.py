"""A group of worker processes: restarted when they die, stopped together."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from clotho.config import KEYS_PIPE, environment_without
from clotho.failure_policy import StepAction, kind_of, policy_for
from clotho.host_failures import described, is_host_failure
from clotho.processes.keys import pipe_with
from clotho.processes.parent_death import with_parent_death_signal

QUICK_DEATH_SECONDS = 5.0
"""A process that lived shorter than this is restarted after a pause."""
RESTART_PAUSE_SECONDS = 1.0
REJECTED = 2
"""Exit status of a process that can't run as configured: it is not restarted."""

log = logging.getLogger("clotho")


@dataclass(frozen=True)
class ProcessPlan:
    """One worker process: its name in the log and its command line."""

    name: str
    argv: tuple[str, ...]
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of model servers, which it reads from a pipe."""


KILL_SECONDS = 2.0
"""Seconds after a second signal in which processes end by themselves."""


class ProcessGroup:
    """Keeps processes running until SIGTERM or SIGINT; a second signal ends them at once.

    If this process is killed, they get SIGTERM.
    """

    def __init__(self, plans: Sequence[ProcessPlan]) -> None:
        self._plans = plans
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until stopped; returns the exit status: REJECTED if a child refused its configuration."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        return max(await asyncio.gather(*(self._keep(plan) for plan in self._plans)))

    async def _keep(self, plan: ProcessPlan) -> int:
        served = False
        while not self._stopping.is_set():
            started = time.monotonic()
            pipes = [pipe_with(plan.keys)] if plan.keys else []
            try:
                # A session of its own: Ctrl-C reaches it once, through this process.
                process = await asyncio.create_subprocess_exec(
                    *with_parent_death_signal(plan.argv),
                    env=environment_without(()) | ({KEYS_PIPE: str(pipes[0])} if pipes else {}),
                    pass_fds=pipes,
                    start_new_session=True,
                )
            except OSError as error:
                if not (served and is_host_failure(error)):
                    raise
                # no process or memory is left now: the others go on, and this one is started when there is
                log.warning("process %s isn't started again yet: %s", plan.name, described(error))
                await self._pause()
                continue
            finally:
                for pipe in pipes:
                    # the child has its own; kept here, each restart would leave one open
                    os.close(pipe)
            self._running[plan.name] = process
            # A signal that came while it was being started found it in no list.
            if self._stopping.is_set():
                process.terminate()
            status = await process.wait()
            if self._stopping.is_set():
                break
            served = served or time.monotonic() - started > QUICK_DEATH_SECONDS
            # A child that served before is configured well: it was restarted into an outage.
            if status == REJECTED and not served:
                self._stop()
                return REJECTED
            log.warning("process %s (pid %d) ended with status %d", plan.name, process.pid, status)
            if time.monotonic() - started < QUICK_DEATH_SECONDS:
                await self._pause()
        return 0

    async def _pause(self) -> None:
        """Wait before the next start, unless all processes are to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), RESTART_PAUSE_SECONDS)

    def _on_signal(self) -> None:
        if not self._stopping.is_set():
            self._stop()
            return
        self._terminate()  # their second signal: they end what only they know of, such as authors' processes
        asyncio.get_running_loop().call_later(KILL_SECONDS, self._kill)

    def _stop(self) -> None:
        self._stopping.set()
        self._terminate()

    def _terminate(self) -> None:
        for process in self._alive():
            process.terminate()

    def _kill(self) -> None:
        for process in self._alive():
            process.kill()

    def _alive(self) -> list[asyncio.subprocess.Process]:
        return [process for process in self._running.values() if process.returncode is None]


def exit_status(error: BaseException) -> int:
    """The exit status for `error`: 1 for an outage, after which the group restarts the process, else REJECTED."""
    return 1 if policy_for(kind_of(error)).step is StepAction.RETRY else REJECTED
