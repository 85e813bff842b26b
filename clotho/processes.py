"""Running several worker processes as one: started again when they die, told to stop together."""

import asyncio
import logging
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

QUICK_DEATH = 5.0
"""A process that lived shorter than this, in seconds, is started again only after a pause."""
REJECTED = 2
"""The exit status of a process that can't run as configured: starting it again would not help."""

log = logging.getLogger("clotho")


@dataclass(frozen=True)
class ProcessPlan:
    """One worker process: its name in the log and its command line."""

    name: str
    argv: tuple[str, ...]


class ProcessGroup:
    """Keeps processes running until SIGTERM or SIGINT; a second signal is passed on too, and ends them at once."""

    def __init__(self, plans: Sequence[ProcessPlan]) -> None:
        self._plans = plans
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = False

    async def run(self) -> int:
        """Returns the exit status for this process: REJECTED if a child refused its configuration."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        return max(await asyncio.gather(*(self._keep(plan) for plan in self._plans)))

    async def _keep(self, plan: ProcessPlan) -> int:
        while not self._stopping:
            started = time.monotonic()
            # A session of its own: Ctrl-C reaches it once, through this process.
            process = await asyncio.create_subprocess_exec(*plan.argv, start_new_session=True)
            self._running[plan.name] = process
            status = await process.wait()
            if status == REJECTED:
                self._stop()
                return REJECTED
            if not self._stopping:
                log.warning("process %s (pid %d) ended with status %d", plan.name, process.pid, status)
                await asyncio.sleep(max(0.0, min(1.0, QUICK_DEATH - (time.monotonic() - started))))
        return 0

    def _stop(self) -> None:
        self._stopping = True
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
