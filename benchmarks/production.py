"""Temporal's servers under a benchmark: the development server on SQLite, or the production one on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError

from chaos.cluster.postgres import Postgres
from chaos.cluster.programs import lacking, obtain_temporal
from chaos.cluster.temporal import ClusteredTemporal
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.errors import InvalidInput
from clotho.processes.child import ChildProcess
from clotho.temporal.namespace import ensure_search_attributes

REGISTERED_SECONDS = 120.0


@dataclass(frozen=True)
class Served:
    address: str
    process: ChildProcess
    """Temporal's."""
    database_bytes: Callable[[], Awaitable[int]]
    """On disk."""
    database_pid: int | None = None
    """The process of the database and its children; None: Temporal's own."""


async def until_registered(client: Client) -> None:
    """Return when a new namespace, which a server comes to know after a while, has Clotho's search attributes."""
    async with asyncio.timeout(REGISTERED_SECONDS):
        while True:
            try:
                return await ensure_search_attributes(client)
            except (InvalidInput, RPCError):
                await asyncio.sleep(0.25)


@asynccontextmanager
async def served_by(folder: Path, *, postgresql: bool) -> AsyncIterator[Served]:
    """Raises InvalidInput where the production server can't be had."""
    if not postgresql:
        database = folder / "temporal.db"
        server = TemporalServer(await temporal_binary(), folder / "temporal.log", ui_port=None, db=database)

        async def size() -> int:
            return database.stat().st_size

        async with server:
            yield Served(server.address, server.process, size)
        return
    if (reason := lacking()) is not None:
        raise InvalidInput(f"no PostgreSQL server can be started here: {reason}")
    programs = await obtain_temporal()
    postgres = Postgres(programs, folder / "postgres")
    try:
        await postgres.create()
        temporal = ClusteredTemporal(programs, folder / "temporal", postgres)
        try:
            await temporal.start()
            yield Served(temporal.address, temporal.process, postgres.database_bytes, postgres.pid)
        finally:
            await temporal.stop()
    finally:
        await postgres.stop()
