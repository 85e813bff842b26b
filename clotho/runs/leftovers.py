"""Entries that are no longer needed: of deleted runs, and of sealed rollouts."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from temporalio.client import Client

from clotho.identifiers.keys import DELETED, manifest_key, sealed_key
from clotho.journal import Journal
from clotho.runs.manifest import has_store_within, list_runs
from clotho.temporal.search_attributes import work_of


@dataclass(frozen=True)
class Leftover:
    """Entries without a reader."""

    what: str
    keys: Sequence[str]


async def find_leftovers(journal: Journal, client: Client) -> list[Leftover]:
    """The leftovers of every run without an open workflow."""
    deleted = [key.removeprefix(DELETED) for key in await journal.keys(DELETED)]
    runs = await list_runs(journal)
    found = [leftover for run in deleted if (leftover := await _of_deleted(journal, run, run in runs)).keys]
    for run in sorted(set(runs) - set(deleted)):
        found += await _of_sealed(journal, run)
    # asked after the listing: a run that was started meanwhile keeps its entries
    live: dict[str, bool] = {}
    for run in {run_of(each) for each in found}:
        open_ = await client.count_workflows(f"{work_of(run)} AND ExecutionStatus = 'Running'")
        live[run] = open_.count > 0
    return [each for each in found if not live[run_of(each)]]


def run_of(leftover: Leftover) -> str:
    return leftover.keys[0].partition("/")[0]


async def _of_deleted(journal: Journal, run: str, unfinished: bool) -> Leftover:
    """Entries written after the run was deleted, or left by an interrupted deletion."""
    if await has_store_within(journal, run):
        return Leftover(f"deleted run {run}", [])
    keys = await journal.keys(f"{run}/")
    # Last, as in a deletion: what is cut off here is found again.
    return Leftover(f"deleted run {run}", [*keys, *([manifest_key(run)] if unfinished and keys else [])])


async def _of_sealed(journal: Journal, run: str) -> list[Leftover]:
    """Entries beside a rollout's sealed object that it holds or makes useless."""
    found = []
    for rollout, keys in _by_rollout(await journal.keys(f"{run}/")).items():
        if sealed_key(rollout) in keys and len(keys) > 1:
            superseded = await journal.superseded(rollout, keys)
            if superseded:
                found.append(Leftover(f"sealed rollout {rollout}", superseded))
    return found


def _by_rollout(keys: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        parts = key.split("/")
        if len(parts) > 3:
            found["/".join(parts[:3])].append(key)
    return found
