"""The model server as a child process."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from clotho.errors import ModelUnavailable

READY = "serving at "
"""What the server's one line on standard output starts with; its URL follows."""
SECONDS_TO_START = 60
SECONDS_TO_STOP = 10


class EmbeddedModelServer:
    """Runs the server in a process of its own; `url` is where it answers, and stays the same over restarts.

    Raises ModelUnavailable, with the end of the log, when the process ends instead of becoming ready.
    """

    def __init__(
        self, log: Path, *, port: int = 0, weights: Path | None = None, model: str = "clotho-tiny"
    ) -> None:
        self.model = model
        self._log = log
        self._port = port
        self._weights = weights
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Without a path: the OpenAI API is under /v1."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start and wait until requests are answered."""
        arguments = ["--port", str(self._port), "--model-name", self.model]
        if self._weights is not None:
            arguments += ["--weights", str(self._weights)]
        descriptor = await asyncio.to_thread(
            os.open, self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "clotho.embedded.model",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=descriptor,
            )
        finally:
            os.close(descriptor)
        try:
            self._port = await asyncio.wait_for(self._announced_port(self._process), SECONDS_TO_START)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ask the process to end, and kill it if it doesn't."""
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), SECONDS_TO_STOP)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def kill(self) -> None:
        """End the process at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            await self.stop()

    async def _announced_port(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        if not line.startswith(READY):
            log = await asyncio.to_thread(self._log.read_text)
            raise ModelUnavailable(f"the model server ended before it was ready: {log[-500:].strip()}")
        return int(line.rpartition(":")[2])

    async def __aenter__(self) -> "EmbeddedModelServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
