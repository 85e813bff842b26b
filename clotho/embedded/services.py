"""Everything a run needs, on one machine: Temporal, the embedded model and the workers."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from clotho.config import Settings, cache_folder, program_on_path
from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.ports import free_port, port_is_free
from clotho.embedded.process import ChildProcess
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.errors import InvalidInput
from clotho.search_attributes import SEARCH_ATTRIBUTES

WORKER = Path("worker.py")
TEMPORAL_PORT = 7233
UI_PORT = 8233
MODEL_PORT = 8101

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Ports:
    temporal: int = TEMPORAL_PORT
    ui: int = UI_PORT
    model: int = MODEL_PORT

    @classmethod
    def free(cls) -> "Ports":
        """The usual ports where nothing listens there, others where something does."""
        usual = cls()
        return cls(
            *(port if port_is_free(port) else free_port() for port in (usual.temporal, usual.ui, usual.model))
        )


@dataclass(frozen=True)
class Services:
    """What is running, and where."""

    temporal: TemporalServer
    model: EmbeddedModelServer
    worker: ChildProcess
    logs: Path

    @property
    def ui(self) -> str:
        assert self.temporal.ui_url is not None
        return self.temporal.ui_url

    @property
    def model_url(self) -> str:
        return f"{self.model.url}/v1"

    async def ended(self) -> str:
        """Wait until one of the services ends by itself, and say which."""
        while True:
            for name, running in (("Temporal", self.temporal.running), ("the workers", self.worker.running)):
                if not running:
                    return name
            await asyncio.sleep(0.5)


@asynccontextmanager
async def local_services(settings: Settings, ports: Ports, announce: Announce) -> AsyncIterator[Services]:
    """Start everything, and stop it in the reverse order: the workers drain while the servers still answer.

    Raises InvalidInput for a port in use, a Temporal binary that can't be had, or a folder without worker.py.
    """
    folder = settings.folder
    logs = prepared_logs(folder)
    binary = await temporal_binary(
        cache_folder() / "bin",
        on_path=program_on_path("temporal"),
        go=program_on_path("go"),
        announce=announce,
    )
    async with AsyncExitStack() as stack:
        temporal = TemporalServer(
            binary,
            logs / "temporal.log",
            port=ports.temporal,
            ui_port=ports.ui,
            db=folder / "temporal.db",
            search_attributes=SEARCH_ATTRIBUTES,
        )
        await stack.enter_async_context(temporal)
        announce(f"Temporal {temporal.address}, UI {temporal.ui_url}")
        model = await stack.enter_async_context(EmbeddedModelServer(logs / "model.log", port=ports.model))
        announce(f"embedded model {model.url}/v1")
        command = [
            sys.executable,
            str(WORKER),
            "--store",
            settings.store,
            "--temporal",
            temporal.address,
        ]
        worker = ChildProcess(command, logs / "worker.log")
        await worker.start()
        stack.push_async_callback(worker.stop, settings.worker.drain_seconds)
        announce(f"workers started; logs in {logs}")
        yield Services(temporal, model, worker, logs)
        announce("stopping: workers finish what is in flight")


def prepared_logs(folder: Path) -> Path:
    if not WORKER.is_file():
        raise InvalidInput("there is no worker.py here: run this in a checkout of Clotho")
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return logs
