"""Two runs side by side."""

from pathlib import Path

import httpx

from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.viewer.listing import sums_of
from clotho.viewer.rows import group_row
from clotho.viewer.run_comparison import compared_runs, paired
from tests.support import PATIENCE_SECONDS, eventually
from tests.viewer.conftest import StartViewer
from tests.viewer.stored import group_entry, write_group, write_run


def test_runs_are_compared_on_the_items_that_both_have_once() -> None:
    a = [group_row(f"a/g{item:06}", group_entry(f"a/g{item:06}", (0.0, 1.0))) for item in range(3)]
    b = [group_row(f"b/g{item:06}", group_entry(f"b/g{item:06}", (1.0, 1.0))) for item in (1, 2, 2, 7)]
    told = paired(a, b)
    assert told is not None
    assert (told.items, told.mean, told.better, told.worse) == (1, 0.5, 1, 0)
    assert [pair.b.group for pair in told.most] == ["b/g000001"]
    assert paired(a, b[3:]) is None


def test_a_rollout_that_met_two_disturbances_is_one_disturbed_rollout() -> None:
    row = group_row("a/g000000", group_entry("a/g000000", (0.0, 1.0)))
    hit = row.rollouts[0]._replace(disturbances=("sandbox_lost", "replayed"))
    sums = sums_of([row._replace(rollouts=(hit, row.rollouts[1]))])
    assert {row.name: row.a for row in compared_runs(sums, sums)}["disturbed rollouts"] == 1
    assert sums.disturbances == {"sandbox_lost": 1, "replayed": 1}


async def test_the_page_of_two_runs(tmp_path: Path, view: StartViewer) -> None:
    journal = Journal(FilesystemStore(tmp_path / "store"))
    for run, scores in (("first", (0.0, 0.5)), ("second", (1.0, 0.5))):
        await write_run(journal, run, 4)
        for item in range(4):
            await write_group(journal, run, item, *scores)
    url = await view(tmp_path / "store", CLOTHO_TEMPORAL__ADDRESS="127.0.0.1:1")
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:

        async def read() -> bool:
            page = (await client.get("/compare-runs", params={"a": "first", "b": "second"})).text
            return (
                "B is better at 4 and worse at 0 (sign test: p = 0.125). The mean difference is +0.5," in page
            )

        await eventually(read, "the comparison of both runs", PATIENCE_SECONDS)
        assert 'name="b"><option>second</option>' in (await client.get("/r/first")).text
        for wrong in ({"a": "first"}, {"a": "first", "b": "none"}, {"a": "<b>", "b": "second"}):
            assert (await client.get("/compare-runs", params=wrong)).status_code == 404
