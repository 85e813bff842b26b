"""A store below another one's prefix, which has the keys of a run of that name."""

from pathlib import Path

import pytest

from clotho.errors import InvalidInput
from clotho.identifiers.keys import deleted_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.endpoint import Endpoint
from clotho.runs.deletion import delete_run
from clotho.runs.leftovers import find_leftovers
from clotho.runs.manifest import Deleted, list_runs, open_run
from clotho.runs.request import run_manifest
from tests.cluster import Cluster
from tests.support import ONE_FILE


async def begun(store: Path, run: str) -> Journal:
    journal = Journal(FilesystemStore(store))
    manifest = run_manifest(ONE_FILE, run, "scripted")
    await open_run(journal, manifest, Endpoint(base_url="http://127.0.0.1:1/v1"))
    return journal


async def test_a_run_of_the_name_of_a_store_within_is_refused(tmp_path: Path) -> None:
    await begun(tmp_path / "inner", "kept")
    with pytest.raises(
        InvalidInput, match="inner is another store, whose keys would be those of the run 'inner'"
    ):
        await begun(tmp_path, "inner")


async def test_a_store_among_the_keys_of_a_run_outlives_it(cluster: Cluster, tmp_path: Path) -> None:
    outer = await begun(tmp_path, "later")
    inner = await begun(tmp_path / "later", "kept")
    await begun(tmp_path, "later")
    with pytest.raises(InvalidInput, match="later is another store"):
        await delete_run(outer, cluster.client, "later")
    await outer.write(deleted_key("later"), Deleted(run="later"))
    assert await find_leftovers(outer, cluster.client) == []
    assert await list_runs(inner) == ["kept"]
