"""A child process with a log file, and its end by pid."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

STOP_SECONDS = 10.0
LOG_TAIL_BYTES = 4_096


class ChildProcess:
    """A server run as a child; both its streams go to `log`, which is appended to."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = tuple(command)
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C must reach the workers, which still need the servers to drain.
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
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
    def last_words(self) -> str:
        """The last line of the log that isn't blank."""
        with self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """SIGTERM, and SIGKILL to what is still there after `seconds`."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
