"""A Temporal development server as a child process, with the settings that Clotho's loops need."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from clotho.errors import InvalidInput
from clotho.processes.child import ChildProcess
from clotho.processes.ports import HOST, claim, free_port
from clotho.temporal.search_attributes import SEARCH_ATTRIBUTES

START_SECONDS = 60.0
POLL_SECONDS = 0.1

DYNAMIC_CONFIG = {
    # With the default of 20 polls per second and the development server's one shard, every step of a
    # workflow waits some 45 ms once a burst is used up.
    "history.transferProcessorMaxPollRPS": 2_000,
    "history.timerProcessorMaxPollRPS": 2_000,
    # Long polls count against it: workers and waiting clients together exceed the default.
    "frontend.namespaceCount": 10_000,
    # Parts of a queue are for several hosts: on one they only pass tasks and polls on to each other.
    "matching.numTaskqueueReadPartitions": 1,
    "matching.numTaskqueueWritePartitions": 1,
}


HEAP_GROWTH = "GOGC=400"
"""Collecting garbage whenever its small heap has doubled takes a seventh of the server's CPU."""


class TemporalServer:
    """A server that is started, stopped, killed and restarted at one address.

    `search_attributes` maps names to types. With a `db` file the server's state outlives it. A port of 0
    picks a free one; `ui_port=None` leaves the UI out.
    """

    def __init__(
        self,
        binary: Path,
        log: Path,
        *,
        port: int = 0,
        ui_port: int | None = 0,
        db: Path | None = None,
        search_attributes: Mapping[str, str] = SEARCH_ATTRIBUTES,
        dynamic_config: Mapping[str, int] = DYNAMIC_CONFIG,
    ) -> None:
        self.port = port or free_port()
        self.ui_port = free_port() if ui_port == 0 else ui_port
        self._db = db
        self._log = log
        command = server_command(binary, self.port, self.ui_port, db, search_attributes, dynamic_config)
        self.process = ChildProcess(["env", HEAP_GROWTH, *command], log)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ui_url(self) -> str | None:
        return f"http://{HOST}:{self.ui_port}" if self.ui_port is not None else None

    @property
    def pid(self) -> int | None:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.running

    async def start(self, seconds: float = START_SECONDS) -> None:
        """Return when the server serves. Raises InvalidInput with one line that says why it doesn't.

        After `stop` or `kill`, it starts again at the same address with the same database.
        """
        for port in filter(None, (self.port, self.ui_port)):
            claim(port)
        if self._db is not None:
            self._db.parent.mkdir(parents=True, exist_ok=True)
        await self.process.start()
        try:
            await asyncio.wait_for(self._serving(), seconds)
        except TimeoutError:
            await self.kill()
            raise InvalidInput(
                f"the Temporal server did not serve within {seconds:.0f} s: {self._log}"
            ) from None
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        await self.process.stop()

    async def kill(self) -> None:
        """SIGKILL: what a crash leaves is left."""
        await self.process.kill()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _serving(self) -> None:
        while True:
            if not self.process.running:
                raise InvalidInput(
                    f"the Temporal server did not start: {self.process.last_words} [{self._log}]"
                )
            try:
                client = await Client.connect(self.address)
                # the server accepts connections before its namespace is there
                await client.workflow_service.describe_namespace(
                    DescribeNamespaceRequest(namespace="default")
                )
                return
            # RuntimeError: nothing listens yet
            except (RPCError, RuntimeError):
                await asyncio.sleep(POLL_SECONDS)


def server_command(
    binary: Path,
    port: int,
    ui_port: int | None,
    db: Path | None,
    search_attributes: Mapping[str, str],
    dynamic_config: Mapping[str, int] = DYNAMIC_CONFIG,
) -> list[str]:
    command = [str(binary), "server", "start-dev", "--log-level", "error", "--ip", HOST, "--port", str(port)]
    command += ["--headless"] if ui_port is None else ["--ui-port", str(ui_port)]
    if db is not None:
        command += ["--db-filename", str(db)]
        # with a write-ahead log, NORMAL loses nothing when the process is killed, and saves an fsync a commit
        command += ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL"]
    for name, kind in search_attributes.items():
        command += ["--search-attribute", f"{name}={kind}"]
    for name, value in dynamic_config.items():
        command += ["--dynamic-config-value", f"{name}={value}"]
    return command
