"""A run in the store: its manifest and its model's endpoint."""

import json
import time
from collections.abc import Mapping

from pydantic import JsonValue

from clotho.config import checked_variable_name
from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.identifiers.keys import (
    DELETED,
    RUNS,
    adapter_items_prefix,
    capabilities_prefix,
    deleted_key,
    endpoint_prefix,
    items_prefix,
    manifest_key,
    run_opened_key,
)
from clotho.journal import Journal
from clotho.models.backend import ServerCapabilities, checked_base_url
from clotho.models.endpoint import Endpoint
from clotho.rollouts.run import RunManifest
from clotho.runs.budgets import budget_asked, set_budget


class Deleted(FrozenModel):
    """The mark of a deleted run: names are not used twice."""

    run: str


class Opened(FrozenModel):
    """The run was first asked for. Unix time."""

    at: float


async def open_run(journal: Journal, manifest: RunManifest, endpoint: Endpoint | None) -> None:
    """Write the run's manifest, or check that it is the one in the store; make `endpoint` the current one.

    The budget and prices that it names become the current ones, too. Settings may change until the run has items: a
    first try with a wrong model or tokenizer keeps no name taken. Raises InvalidInput with both values of every
    field that may not change and did, for a budget of cost without a price, and for a new run with the name of
    a store within this one.
    """
    if endpoint is not None:
        # checked before anything is written: what is refused here takes no name
        for server in endpoint.servers:
            checked_base_url(server.base_url)
    if endpoint is not None and endpoint.api_key_variable is not None:
        checked_variable_name(endpoint.api_key_variable)
    # not of a run that has begun: a store that was made among its keys only keeps it from being deleted
    if await journal.read_current(manifest_key(manifest.run), RunManifest) is None:
        await refuse_store_within(journal, manifest.run)
    if await journal.read(deleted_key(manifest.run), Deleted) is not None:
        raise InvalidInput(f"a run {manifest.run} was deleted: choose another --run")
    entry = await budget_asked(journal, manifest, acts=endpoint is not None)
    # the first time stays: a later start finds the entry written
    await journal.write(run_opened_key(manifest.run), Opened(at=time.time()))
    stored = await journal.write(manifest_key(manifest.run), manifest)
    if stored.fingerprint != manifest.fingerprint and not await has_begun(journal, manifest.run):
        await journal.delete([manifest_key(manifest.run)])
        stored = await journal.write(manifest_key(manifest.run), manifest)
    require_unchanged(manifest, stored)
    await set_budget(journal, manifest.run, entry)
    if endpoint is not None and await read_endpoint(journal, manifest.run) != endpoint:
        await journal.append(endpoint_prefix(manifest.run), endpoint)


async def has_store_within(journal: Journal, run: str) -> bool:
    """Whether another store has its keys where the run would: its prefix is this one's with the run's name."""
    return bool(await journal.keys(f"{run}/{RUNS}"))


async def refuse_store_within(journal: Journal, run: str) -> None:
    """Raise InvalidInput where a run's keys are another store's: with the run, that store would be deleted."""
    if await has_store_within(journal, run):
        where = f"{journal.store_identity}/{run}"
        raise InvalidInput(f"{where} is another store, whose keys would be those of the run {run!r}")


def require_unchanged(manifest: RunManifest, stored: RunManifest) -> None:
    """Raise InvalidInput with both values of every field that differs from the run in the store."""
    if stored.fingerprint != manifest.fingerprint:
        # budget and prices may change, so they are no difference
        same = manifest.model_copy(update={"account": stored.account})
        raise InvalidInput(
            f"run {manifest.run} exists with other settings ({difference(same, stored)}); "
            "give them again or choose another --run"
        )


async def has_begun(journal: Journal, run: str) -> bool:
    """Whether the run has items or groups, which were made from its settings."""
    return any(
        not key.startswith(f"{run}/~") or key.startswith((items_prefix(run), adapter_items_prefix(run)))
        for key in await journal.keys(f"{run}/")
    )


def difference(ours: FrozenModel, theirs: FrozenModel) -> str:
    """The fields in which two records of one kind differ, by their paths, with both values."""
    mine, other = _leaves(ours.model_dump(mode="json")), _leaves(theirs.model_dump(mode="json"))
    return "; ".join(
        f"{name}: {_shown(other, name)} in the store, {_shown(mine, name)} now"
        for name in differing_fields(ours, theirs)
    )


def differing_fields(ours: FrozenModel, theirs: FrozenModel) -> list[str]:
    """The paths of the fields in which two records of one kind differ."""
    mine, other = _leaves(ours.model_dump(mode="json")), _leaves(theirs.model_dump(mode="json"))
    return [
        name
        for name in {**mine, **other}
        if name not in mine or name not in other or mine[name] != other[name]
    ]


def _leaves(value: Mapping[str, JsonValue], prefix: str = "") -> dict[str, JsonValue]:
    """All values by their paths; of objects, only empty ones count as values."""
    found: dict[str, JsonValue] = {}
    for name, inner in value.items():
        if isinstance(inner, dict) and inner:
            found |= _leaves(inner, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = inner
    return found


def _shown(values: Mapping[str, JsonValue], name: str) -> str:
    return json.dumps(values[name], ensure_ascii=False) if name in values else "nothing"


async def read_manifest(journal: Journal, run: str) -> RunManifest:
    """Read the run's manifest; raises InvalidInput for a run that the store doesn't have."""
    if (manifest := await journal.read(manifest_key(run), RunManifest)) is None:
        raise InvalidInput(f"there is no run {run!r} in {journal.store_identity}")
    return manifest


async def read_new_manifest(journal: Journal, run: str) -> RunManifest:
    """Like `read_manifest`, before the run has items: settings may still change, so nothing is kept in memory."""
    manifest = await journal.read_current(manifest_key(run), RunManifest)
    if manifest is None:
        raise InvalidInput(f"there is no run {run!r} in {journal.store_identity}")
    return manifest


async def list_runs(journal: Journal) -> list[str]:
    """The names of the runs in the store."""
    return [key.removeprefix(RUNS) for key in await journal.keys(RUNS)]


async def taken_names(journal: Journal) -> frozenset[str]:
    """The names that no new run may have: those of runs in the store, and of deleted ones."""
    deleted = await journal.keys(DELETED)
    return frozenset((*await list_runs(journal), *(key.removeprefix(DELETED) for key in deleted)))


async def opened_at(journal: Journal, run: str) -> float | None:
    """Unix time at which the run was first asked for; None for a run of an older version."""
    entry = await journal.read(run_opened_key(run), Opened)
    return entry.at if entry is not None else None


async def read_endpoint(journal: Journal, run: str) -> Endpoint | None:
    return await journal.latest(endpoint_prefix(run), Endpoint)


def required_endpoint(endpoint: Endpoint | None, run: str) -> Endpoint:
    """Raises InvalidInput where the run has none."""
    if endpoint is None:
        raise InvalidInput(f"run {run!r} has no model server; start it with --model URL")
    return endpoint


async def note_capabilities(journal: Journal, run: str, served: ServerCapabilities) -> None:
    """Keep the capabilities of the run's token-exact server, if they changed."""
    if await read_capabilities(journal, run) != served:
        await journal.append(capabilities_prefix(run), served)


async def read_capabilities(journal: Journal, run: str) -> ServerCapabilities | None:
    """The last known capabilities of the run's server; None before a probe, and in chat mode."""
    return await journal.latest(capabilities_prefix(run), ServerCapabilities)
