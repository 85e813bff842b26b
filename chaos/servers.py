"""The servers that cells share, and what a cell may have in place of the shared model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import DYNAMIC_CONFIG, TemporalServer
from clotho.rollouts.agent import Agent
from clotho.run_settings import RunSettings

SHORT_HISTORIES = {"limit.historyCount.suggestContinueAsNew": 16}
"""Events: fewer than two turns leave behind, and more than a campaign needs to note the first group it adopts."""


class Upstream(Protocol):
    """A model server."""

    @property
    def url(self) -> str:
        """Its URL without a path."""

    @property
    def model(self) -> str:
        """The name of its model."""


class ScriptedTasks(Protocol):
    """An environment, and a model that says what its tasks take."""

    @property
    def environment(self) -> str: ...

    @property
    def agent(self) -> Agent: ...

    @property
    def settings(self) -> RunSettings: ...

    def served(self, folder: Path, seconds: int) -> AbstractAsyncContextManager[Upstream]:
        """Serve the model, with its files in `folder`; the command that is struck takes so many seconds."""


@dataclass
class Servers:
    """Temporal with a database, and the embedded model: shared by cells that are played one after another."""

    folder: Path
    temporal: TemporalServer
    model: EmbeddedModelServer

    async def forget_everything(self) -> None:
        """Temporal dies and its database is deleted."""
        await self.temporal.kill()
        for file in self.folder.glob("temporal.db*"):
            file.unlink()
        await self.temporal.start()


@asynccontextmanager
async def servers_in(folder: Path, short_histories: bool = False) -> AsyncIterator[Servers]:
    """With `short_histories`, Temporal suggests to continue as new so often that rollouts do within two turns."""
    await asyncio.to_thread(folder.mkdir, mode=0o711, parents=True)
    binary = await temporal_binary()
    config = {**DYNAMIC_CONFIG, **(SHORT_HISTORIES if short_histories else {})}
    log, db = folder / "temporal.log", folder / "temporal.db"
    async with AsyncExitStack() as stack:
        temporal = TemporalServer(binary, log, ui_port=None, db=db, dynamic_config=config)
        await stack.enter_async_context(temporal)
        model = await stack.enter_async_context(EmbeddedModelServer(folder / "model.log"))
        yield Servers(folder, temporal, model)
