"""A run in the store: what may not change about it, and where its model is."""

import json

from clotho.config import checked_variable_name
from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.identifiers.run_keys import (
    DELETED,
    RUNS,
    deleted_key,
    endpoint_prefix,
    manifest_key,
    served_prefix,
)
from clotho.journal import Journal
from clotho.models.backend import ServedModel, checked_base_url
from clotho.models.endpoint import Endpoint
from clotho.rollouts.run import RunManifest


class Deleted(FrozenModel):
    """The mark of a run that was deleted: write-once names are not used twice."""

    run: str


async def open_run(journal: Journal, manifest: RunManifest, endpoint: Endpoint) -> None:
    """Write the run's manifest, or check that it is the one in the store; make `endpoint` the current one.

    Raises InvalidInput with both values of every field that may not change and did.
    """
    checked_base_url(endpoint.base_url)
    if endpoint.api_key_variable is not None:
        checked_variable_name(endpoint.api_key_variable)
    if await journal.read(deleted_key(manifest.run), Deleted) is not None:
        raise InvalidInput(f"a run {manifest.run} was deleted: choose another --run")
    stored = await journal.write(manifest_key(manifest.run), manifest)
    if stored.fingerprint != manifest.fingerprint:
        raise InvalidInput(
            f"run {manifest.run} exists with other settings ({difference(manifest, stored)}); "
            "give them again or choose another --run"
        )
    if await read_endpoint(journal, manifest.run) != endpoint:
        await journal.append(endpoint_prefix(manifest.run), endpoint)


def difference(ours: FrozenModel, theirs: FrozenModel) -> str:
    """The fields in which two records of one kind differ, with both values."""
    mine, other = ours.model_dump(mode="json"), theirs.model_dump(mode="json")
    return "; ".join(
        f"{name}: {json.dumps(other[name])} in the store, {json.dumps(mine[name])} now"
        for name in mine
        if mine[name] != other[name]
    )


async def read_manifest(journal: Journal, run: str) -> RunManifest:
    """Raises InvalidInput for a run that the store doesn't have."""
    if (manifest := await journal.read(manifest_key(run), RunManifest)) is None:
        raise InvalidInput(f"there is no run {run!r} in {journal.store_identity}")
    return manifest


async def list_runs(journal: Journal) -> list[str]:
    """The names of the runs in the store."""
    return [key.removeprefix(RUNS) for key in await journal.keys(RUNS)]


async def taken_names(journal: Journal) -> frozenset[str]:
    """The names that no new run may have: those of runs in the store, and of deleted ones."""
    deleted = await journal.keys(DELETED)
    return frozenset((*await list_runs(journal), *(key.removeprefix(DELETED) for key in deleted)))


async def read_endpoint(journal: Journal, run: str) -> Endpoint | None:
    return await journal.latest(endpoint_prefix(run), Endpoint)


async def note_served(journal: Journal, run: str, served: ServedModel) -> None:
    """Keep what the run's token-exact server was found to be."""
    if await read_served(journal, run) != served:
        await journal.append(served_prefix(run), served)


async def read_served(journal: Journal, run: str) -> ServedModel | None:
    """What the run's server was last found to be; None before that, and in chat mode."""
    return await journal.latest(served_prefix(run), ServedModel)
