"""The model server as a child process."""

import asyncio
import re
import sys
from pathlib import Path

from clotho.embedded.model.bundled import TINY
from clotho.errors import ModelUnavailable
from clotho.processes.child import ChildProcess
from clotho.processes.ports import claim

READY = "serving at "
"""The start of the server's one line on standard output; its URL follows."""
READY_LINE = re.compile(rf"^{READY}\S*:(\d+)\n", re.MULTILINE)
START_SECONDS = 60.0
POLL_SECONDS = 0.02


class EmbeddedModelServer:
    """Runs the server in a process of its own; `url` is where it answers, and stays the same over restarts.

    Raises InvalidInput for a port in use, and ModelUnavailable, with the end of the log, when the process ends
    instead of becoming ready.
    """

    def __init__(self, log: Path, *, port: int = 0, weights: Path | None = None, model: str = TINY) -> None:
        self.model = model
        self._log = log
        self._port = port
        self._weights = weights
        self.process = self._process()

    @property
    def url(self) -> str:
        """The server's URL without a path: the OpenAI API is under /v1."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process.running else None

    async def start(self) -> None:
        """Start and wait until requests are answered."""
        # a port that is in use is told as such, and not by the end of a log
        claim(self._port)
        self.process = self._process()
        await self.process.start()
        try:
            self._port = await asyncio.wait_for(self._announced_port(), START_SECONDS)
        except BaseException:
            await self.process.kill()
            raise

    async def stop(self) -> None:
        """Ask the process to end, and kill it if it doesn't."""
        await self.process.stop()

    async def kill(self) -> None:
        """End the process at once, as a crash would."""
        await self.process.kill()

    def _process(self) -> ChildProcess:
        command = [sys.executable, "-m", "clotho.embedded.model"]
        command += ["--port", str(self._port), "--model-name", self.model]
        command += ["--weights", str(self._weights)] if self._weights is not None else []
        return ChildProcess(command, self._log)

    async def _announced_port(self) -> int:
        while (announced := READY_LINE.search(self.process.output)) is None:
            if not self.process.running:
                raise ModelUnavailable(
                    f"the model server ended before it was ready: {self.process.output[-500:]}"
                )
            await asyncio.sleep(POLL_SECONDS)
        return int(announced[1])

    async def __aenter__(self) -> "EmbeddedModelServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
