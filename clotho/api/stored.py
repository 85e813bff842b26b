"""Runs that the store has."""

from clotho.api.background import background
from clotho.api.handle import Run
from clotho.api.session import sessions
from clotho.identifiers.ids import checked_run_name
from clotho.runs.manifest import list_runs as stored_names
from clotho.runs.manifest import read_manifest


def open(name: str, *, store: str | None = None, temporal: str | None = None) -> Run:
    """The run of that name. Raises InvalidInput for one that the store doesn't have."""
    return background().call(_open(name, store, temporal))


def list_runs(*, store: str | None = None, temporal: str | None = None) -> list[Run]:
    """All runs of the store, by name."""
    return background().call(_listed(store, temporal))


async def _open(name: str, store: str | None, temporal: str | None) -> Run:
    session = await sessions().reading(store, temporal)
    await read_manifest(session.journal, checked_run_name(name))
    return Run(name, session)


async def _listed(store: str | None, temporal: str | None) -> list[Run]:
    session = await sessions().reading(store, temporal)
    return [Run(name, session) for name in await stored_names(session.journal)]
