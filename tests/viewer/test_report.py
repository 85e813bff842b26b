"""`clotho report`: one file that loads nothing, of what the store has."""

from pathlib import Path

import pytest
from playwright.async_api import Browser

from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.plugins.viewer.report import curve_of, effects, phases_of
from clotho.plugins.viewer.rows import RolloutRow
from tests.cli.command import clotho
from tests.viewer.stored import write_group, write_run
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


def test_a_curve_of_many_groups_has_few_points() -> None:
    curve = curve_of([number / 1_000 for number in range(1_000)])
    assert len(curve.points) <= 60
    assert curve.points[0] == (0.0, 0.0) and curve.points[-1] == (1.0, 1.0)
    assert curve_of([0.5]).points == [(0.0, 0.0)]


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
    assert await page.locator("script, link, img").count() == 0
    assert wrong == []
