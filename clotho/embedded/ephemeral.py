"""A Temporal server, workers and a store that last as long as they are used: nothing of them is kept."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from temporalio.client import Client

from clotho import application
from clotho.config import SandboxSettings, Settings
from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.errors import Unavailable
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.processes.child import ChildProcess
from clotho.sandbox.registry import open_backend
from clotho.temporal.conversion import DATA_CONVERTER

DRAIN_SECONDS = 5.0
ELSEWHERE = ("TEMPORAL_API_KEY", "TEMPORAL_TLS", "TEMPORAL_PROFILE")
"""Variables with which the worker would look for another Temporal server than the one that is given."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class EphemeralServices:
    """What is running."""

    client: Client
    journal: Journal
    worker: ChildProcess
    model_url: str | None
    """Of the embedded model, where it was asked for."""

    async def during(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do `work`; raises Unavailable with the workers' last words if they end meanwhile."""
        task, ended = asyncio.create_task(work), asyncio.create_task(self.worker.wait())
        try:
            await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Unavailable(f"the workers ended: {self.worker.last_words}")
            return task.result()
        finally:
            for waiting in (task, ended):
                waiting.cancel()
            await asyncio.wait([task, ended])


@asynccontextmanager
async def ephemeral_services(settings: Settings, *, with_model: bool) -> AsyncIterator[EphemeralServices]:
    """Start them with the sizes, sandboxes and run settings of `settings`, in a folder that is removed at the end.

    Raises InvalidInput for a Temporal binary that can't be had.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clotho-")))
        journal = Journal(FilesystemStore(folder / "store"))
        temporal = TemporalServer(await temporal_binary(), folder / "temporal.log", ui_port=None)
        model = EmbeddedModelServer(folder / "model.log") if with_model else None
        stack.push_async_callback(temporal.stop)
        starts = [temporal.start()]
        if model is not None:
            stack.push_async_callback(model.stop)
            starts.append(model.start())
        await asyncio.gather(*starts)
        sandboxes = settings.sandbox.folder_of(journal.store_identity)
        stack.push_async_callback(destroy_sandboxes, settings.sandbox, sandboxes)
        worker = ChildProcess(_worker_command(folder, temporal.address), folder / "worker.log")
        stack.push_async_callback(worker.stop, DRAIN_SECONDS)
        await worker.start()
        client = await Client.connect(temporal.address, data_converter=DATA_CONVERTER)
        yield EphemeralServices(client, journal, worker, f"{model.url}/v1" if model else None)


def _worker_command(folder: Path, address: str) -> list[str]:
    without = [word for name in ELSEWHERE for word in ("-u", name)]
    variables = ["TEMPORAL_CONFIG_FILE=/dev/null", "CLOTHO_TEMPORAL__NAMESPACE=default"]
    worker = application.command("worker", "--store", str(folder / "store"), "--temporal", address)
    return ["env", *without, *variables, *worker]


async def destroy_sandboxes(settings: SandboxSettings, root: Path) -> None:
    """What a rollout that was cut off has left, and the folder that its sandboxes were in."""
    backend = open_backend(settings, root)
    for held in await backend.leases():
        await backend.destroy(held.lease)
    await backend.reap()
    await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
