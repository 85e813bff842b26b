"""The viewer's index of a run in S3."""

from pathlib import Path

from clotho.journal import Journal
from clotho.plugins.viewer.run_index import RunIndex
from clotho.plugins.viewer.search import raw_entry
from tests.stores.conftest import Place
from tests.viewer.stored import write_group, write_run


async def test_a_run_in_s3_is_indexed_as_one_in_a_folder(s3_place: Place, tmp_path: Path) -> None:
    store = s3_place.open()
    await write_run(Journal(store), "viewed", 5)
    for item in (0, 3):
        await write_group(Journal(store), "viewed", item, 0.0, 1.0)
    index = RunIndex(store, "viewed", tmp_path)
    await index.look(60.0)
    assert [row.name for row in index.in_order] == ["g000000", "g000003"]
    assert (await index.sums()).mean == 0.5
    assert "item-3" in (await raw_entry(store, "viewed/g000003/scored") or "")
