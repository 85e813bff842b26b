"""A child process with a log file."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from clotho.processes.parent_death import with_parent_death_signal

STOP_SECONDS = 10.0
LOG_TAIL_BYTES = 4_096


class ChildProcess:
    """A program run as a child, which does not outlive its parent; output and errors are appended to `log`.

    With `on_terminal`, it has its parent's input and output; `log` has its errors alone.
    """

    def __init__(self, command: Sequence[str], log: Path, on_terminal: bool = False) -> None:
        self.log = log
        self._on_terminal = on_terminal
        self._command = tuple(command)
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0

    async def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            # A session of its own: Ctrl-C must reach the workers, which still need the servers to drain.
            self._process = await asyncio.create_subprocess_exec(
                *with_parent_death_signal(self._command),
                stdin=None if self._on_terminal else asyncio.subprocess.DEVNULL,
                stdout=None if self._on_terminal else log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def output(self) -> str:
        """The process's output since it was started."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    @property
    def last_words(self) -> str:
        """The last line of the log that isn't blank."""
        with self.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, 2) - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    async def wait(self) -> int:
        """The exit status, once it has ended."""
        assert self._process is not None
        return await self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Send SIGTERM, and SIGKILL if it still runs after `seconds`."""
        if not self.running:
            return
        self.terminate()
        try:
            await asyncio.wait_for(self.wait(), seconds)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
