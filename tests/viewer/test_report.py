"""`clotho report`: one file that loads nothing, of what the store has."""

from pathlib import Path

import pytest
from playwright.async_api import Browser

from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.plugins.viewer.report import effects, items_of, phases_of
from clotho.plugins.viewer.rows import RolloutRow, group_row
from tests.cli.command import clotho
from tests.viewer.stored import group_entry, write_group, write_run
from tests.viewer.test_pages import opened


def rollout(score: float, *disturbances: str) -> RolloutRow:
    return RolloutRow("r0", score, 2, 1, 0, 100, 1.0, "completed", disturbances)


def test_disturbed_rollouts_are_set_beside_the_others() -> None:
    told = effects(
        [rollout(1.0), rollout(0.0), rollout(1.0, "repaired"), rollout(0.5, "repaired", "resumed")]
    )
    assert [(each.name, each.rollouts, each.mean) for each in told] == [
        ("not disturbed", 2, 0.5),
        ("repaired", 2, 0.75),
        ("resumed", 1, 0.5),
    ]


def test_groups_of_an_item_are_one_row() -> None:
    groups = {"a": (0.0, 1.0), "b": (0.5, 0.5)}
    rows = [
        group_row(
            f"told/g00000{at}",
            group_entry(f"told/g00000{at}", scores).model_copy(update={"item": {"id": item}}),
        )
        for at, (item, scores) in enumerate([*groups.items(), *groups.items()])
    ]
    told = items_of(rows, success=0.5)
    assert [(each.label, each.groups, each.mean, each.passed) for each in told] == [
        ("a", ["g000000", "g000002"], 0.5, 0.5),
        ("b", ["g000001", "g000003"], 0.5, 1.0),
    ]


def test_no_step_is_told_to_take_longer_than_the_longest() -> None:
    (phase,) = phases_of({"model": [1.0, 1.7]})
    assert phase.median == 1.35
    assert phase.p90 <= phase.longest == 1.7


@pytest.mark.slow
async def test_a_report_is_one_file_that_loads_nothing(tmp_path: Path, browser: Browser) -> None:
    journal, report = Journal(FilesystemStore(tmp_path / "store")), tmp_path / "report.html"
    await write_run(journal, "told", 3)
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CLOTHO_TEMPORAL__ADDRESS": "127.0.0.1:1"}
    order = ("report", "told", "-o", report, "--store", tmp_path / "store")
    refused = await clotho(*order, environment=variables)
    assert "run told has no scored group yet" in refused.complaint
    for item, scores in enumerate(((0.0, 1.0), (1.0, 1.0), (0.0, 0.0))):
        await write_group(journal, "told", item, *scores)
    done = await clotho(*order, environment=variables)
    assert done.status == 0, done.error
    page, wrong = await opened(browser, report.as_uri())
    shown = " ".join((await page.locator("main").inner_text()).split())
    assert "pass@1 50.0 % pass@2 66.7 %" in shown
    assert "not disturbed 6 0.5" in shown
    assert "The run was given no prices" in shown
    assert "item-0 g000000 2 0.5 partial 50 %" in shown
    assert (
        "No rollout failed." in shown and "Clotho that wrote this report" in shown and "group size 2" in shown
    )
    assert await page.locator("polyline").count() == 0
    assert await page.locator("script, link, img").count() == 0
    assert wrong == []
