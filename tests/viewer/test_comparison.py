"""Two runs side by side."""

from collections.abc import Sequence
from pathlib import Path

import httpx

from clotho.evaluation.comparison import compared
from clotho.evaluation.figures import DIFFERENCE, figures_of
from clotho.evaluation.results import RunResults
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.plugins.atropos.evaluation import metrics_of
from clotho.plugins.viewer.compare import compared_items, compared_runs
from clotho.plugins.viewer.listing import sums_of
from clotho.plugins.viewer.report import passes
from clotho.plugins.viewer.rows import GroupRow, group_row
from clotho.rollouts.group import GroupEntry
from clotho.runs.request import run_manifest
from tests.support import PATIENCE_SECONDS, eventually
from tests.viewer.conftest import StartViewer
from tests.viewer.stored import group_entry, write_group, write_run

PREFIX = "Read the whole of this text before you begin, and then answer the question at its end. " * 2


def entries(run: str, items: Sequence[int], scores: Sequence[float]) -> list[GroupEntry]:
    """Groups of items without an id, whose prompts begin alike."""
    return [
        group_entry(f"{run}/g{item:06}", scores).model_copy(update={"item": {"prompt": f"{PREFIX}{item}"}})
        for item in items
    ]


def rows(groups: Sequence[GroupEntry]) -> list[GroupRow]:
    return [group_row(each.siblings[0].rollout.rpartition("/")[0], each) for each in groups]


def test_runs_are_compared_by_item_as_eval_compares_them() -> None:
    a = [*entries("a", range(9), (0.0, 1.0)), *entries("a", [9], (1.0, 1.0))]
    b = [*entries("b", range(1, 10), (1.0, 1.0)), *entries("b", [2], (0.0, 0.0)), *entries("b", [17], (0.5,))]
    told = compared_items(rows(a), rows(b))
    assert told is not None
    manifest = run_manifest("tests.environments.one_file:OneFile", "a", "scripted", group_size=2)
    mine, theirs = [RunResults(manifest=manifest, items=10, groups=tuple(groups)) for groups in (a, b)]
    evaluated = compared(mine, theirs, success=1.0, difference=DIFFERENCE)
    assert (told.items, told.rewards) == (evaluated.items, evaluated.reward) and told.items == 9
    assert (told.rewards.better, told.rewards.worse) == (7, 0)
    assert [pair.b.group for pair in told.most] == [f"b/g{item:06}" for item in (1, 3, 4, 5, 6, 7, 8)]
    assert compared_items(rows(a), rows(b)[-1:]) is None


def test_pass_at_k_is_told_for_the_same_k_everywhere() -> None:
    groups = entries("a", range(4), (0.0, 1.0, 0.0, 1.0, 1.0, 1.0))
    manifest = run_manifest("tests.environments.one_file:OneFile", "a", "scripted", group_size=6)
    figures = figures_of(RunResults(manifest=manifest, items=4, groups=tuple(groups)))
    assert list(figures.pass_at) == [1, 2, 4, 6]
    assert passes(rows(groups), success=1.0) == figures.pass_at
    shown = metrics_of(groups, failed=0, success=1.0)
    assert {name for name in shown if "pass@" in name} == {f"eval/pass@{k}" for k in figures.pass_at}


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
                "B is better at 4 and worse at 0 (sign test: p = 0.125). The mean difference is +0.5." in page
            )

        await eventually(read, "the comparison of both runs", PATIENCE_SECONDS)
        assert 'name="b"><option>second</option>' in (await client.get("/r/first")).text
        for wrong in ({"a": "first"}, {"a": "first", "b": "none"}, {"a": "<b>", "b": "second"}):
            assert (await client.get("/compare-runs", params=wrong)).status_code == 404
