"""Pages and the report in Chromium, in light and dark, wide and narrow: nothing is cut off, pale or missing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import httpx
import pytest
from playwright.async_api import Browser, Page

from clotho.config import TemporalSettings
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.listeners.access import PageAccess
from clotho.plugins.viewer.app import Viewed, Viewer
from tests.cli.command import clotho
from tests.support import PATIENCE_SECONDS, eventually
from tests.viewer.conftest import StartViewer
from tests.viewer.gallery import BEGUN, BROKEN, LONG, SCORED, write_gallery
from tests.viewer.stored import write_group, write_run
from tests.viewer.test_pages import opened

NOWHERE = {"CLOTHO_TEMPORAL__ADDRESS": "127.0.0.1:1"}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PAGES = (
    "/",
    f"/r/{SCORED}",
    f"/r/{BEGUN}",
    f"/r/{BROKEN}",
    f"/r/{LONG}",
    f"/r/{BROKEN}/g000000",
    f"/r/{LONG}/r0",
    f"/r/{BEGUN}/g000000/r0",
    f"/compare?a={LONG}/r1&b={LONG}/r2",
    f"/search/{SCORED}?text=parse",
)
FAULTS = """() => {
    const faults = [];
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) faults.push(`the page is ${root.scrollWidth} px wide`);
    const channels = (color) => color.match(/[\\d.]+/g).map(Number);
    const luminance = (color) => {
        const [r, g, b] = channels(color).map((c) => 
            (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
        );
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const color = getComputedStyle(each).backgroundColor;
            if ((channels(color)[3] ?? 1) === 1) return color;
        }
        return "rgb(255, 255, 255)";
    };
    for (const element of document.querySelectorAll("body *")) {
        const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!text || !element.checkVisibility({ visibilityProperty: true })) continue;
        const box = element.getBoundingClientRect();
        if (box.right <= 0 || element.closest("svg, option, select")) continue;
        const style = getComputedStyle(element);
        const [high, low] = [luminance(style.color), luminance(behind(element))].sort((a, b) => b - a);
        if ((high + 0.05) / (low + 0.05) < 4.5) faults.push(`pale: ${element.outerHTML.slice(0, 120)}`);
        const cuts = ["hidden", "clip"].includes(style.overflowX) && style.textOverflow !== "ellipsis";
        const beyond = element.scrollWidth > element.clientWidth + 1;
        if (cuts && beyond) faults.push(`cut: ${element.outerHTML.slice(0, 120)}`);
    }
    for (const code of document.querySelectorAll("pre")) {
        if (code.scrollWidth > code.clientWidth + 1) faults.push(`beyond its box: ${code.outerHTML.slice(0, 120)}`);
    }
    for (const panel of document.querySelectorAll(".panel, .fact dd")) {
        const empty = !panel.innerText.trim() && !panel.querySelector("svg");
        if (empty && panel.checkVisibility()) faults.push("an empty card");
    }
    const plural = document.body.innerText.match(/\\b1 (turns|groups|rollouts|errors|files|items)\\b/);
    if (plural) faults.push(plural[0]);
    return faults;
}"""
LINE_CHARACTERS = """() => [...document.querySelectorAll(".md p")].map((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.bottom / 12)));
    return each.innerText.length / lines.size;
})"""


@pytest.fixture
async def shown(tmp_path: Path, view: StartViewer) -> str:
    """The address of a viewer that has read the gallery."""
    await write_gallery(Journal(FilesystemStore(tmp_path / "store")))
    url = await view(tmp_path / "store", **NOWHERE)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:

        async def is_read() -> bool:
            return "12/12" in (await client.get("/")).text

        await eventually(is_read, "the index of the run")
    return url


@pytest.fixture
async def page(browser: Browser, shown: str) -> AsyncIterator[Page]:
    page, wrong = await opened(browser, shown)
    yield page
    assert wrong == []


async def look(page: Page, address: str) -> list[str]:
    """Faults of a page as its readers set their browsers."""
    found = []
    await page.goto(address)
    for width in (1400, 400):
        await page.set_viewport_size({"width": width, "height": 900})
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            found += [f"{address} {width} {scheme}: {fault}" for fault in await page.evaluate(FAULTS)]
    return found


@pytest.mark.slow
async def test_no_page_cuts_off_or_hides_what_it_shows(page: Page, shown: str) -> None:
    assert [fault for path in PAGES for fault in await look(page, f"{shown}{path}")] == []


@pytest.mark.slow
async def test_the_report_is_read_on_any_screen(tmp_path: Path, browser: Browser) -> None:
    journal = Journal(FilesystemStore(tmp_path / "store"))
    await write_gallery(journal)
    await write_run(journal, "one", 1)
    await write_group(journal, "one", 0, -1.0)
    for run in (SCORED, "one"):
        report = tmp_path / f"{run}.html"
        order = ("report", run, "-o", report, "--store", tmp_path / "store")
        done = await clotho(*order, environment={**NOWHERE, "XDG_CACHE_HOME": str(tmp_path / "cache")})
        assert done.status == 0, done.error
        page, wrong = await opened(browser, report.as_uri())
        assert (await look(page, report.as_uri()), wrong) == ([], [])


async def test_a_transcript_is_read_by_keys(page: Page, shown: str) -> None:
    await page.goto(f"{shown}/r/{LONG}/r0")
    await page.keyboard.press("?")
    await page.locator("dialog[open]").get_by_text("next turn").wait_for()
    await page.keyboard.press("Escape")
    await page.locator("dialog").wait_for(state="hidden")
    for key, turn in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        await page.keyboard.press(key)
        await page.wait_for_url(f"**#turn-{turn}")
    diff = page.locator("#call-1-0 .shown .diff")
    assert "+def parse_duration" in (await diff.inner_text()).replace("\n+\n", "\n+")
    await page.keyboard.press("r")
    await diff.wait_for(state="hidden")
    assert "\\n\\ndef parse_duration" in await page.locator("#call-1-0 .raw .text").first.inner_text()
    await page.keyboard.press("r")
    await diff.wait_for()
    await page.locator("#call-1-0").get_by_label("raw").check()
    await diff.wait_for(state="hidden")
    outline = page.locator("#outline")
    assert await outline.locator("li").count() == 50
    await outline.get_by_role("link", name="50–56").click()
    await page.locator("#turn-56").wait_for()
    await page.wait_for_load_state()  # keys work once the page's script has run
    for key, address in (("n", "g000000/r1"), ("n", "g000000/r2"), ("p", "g000000/r1"), ("u", "g000000")):
        await page.keyboard.press(key)
        await page.wait_for_url(f"{shown}/r/{SCORED}/{address}")
    await page.get_by_role("heading", name="Fix the parser").wait_for()
    await page.keyboard.press("n")
    await page.wait_for_url(f"{shown}/r/{SCORED}/g000001")
    await page.goto(f"{shown}/r/{LONG}/r3")
    await page.keyboard.press("n")
    await page.wait_for_url(f"{shown}/r/{SCORED}/g000001/r0")
    await page.goto(f"{shown}/r/{SCORED}")
    await page.keyboard.press("/")
    await page.keyboard.type("jk?")
    assert await page.get_by_label("Search in the transcripts").input_value() == "jk?"


async def test_prose_has_lines_that_are_read_easily(page: Page, shown: str) -> None:
    await page.goto(f"{shown}/r/{LONG}/r0")
    lengths = await page.evaluate(LINE_CHARACTERS)
    assert 50 < max(lengths) < 95


async def test_lists_tell_the_states_of_runs(page: Page, shown: str) -> None:
    await page.goto(shown)
    rows = [" ".join(text.split()) for text in await page.locator("#runs tbody tr").all_inner_texts()]
    assert [row.split(" ")[0] for row in rows] == [BROKEN, BEGUN, SCORED]
    assert "12/12 48 0.4917 $0.49 3 HostUnavailable" in rows[-1]
    await page.goto(f"{shown}/r/{BEGUN}")
    head = " ".join((await page.locator("#head").inner_text()).split())
    assert "groups begun 1 not scored yet rollouts begun 3 0 ended turns so far 9 tool calls so far 9" in head
    await page.goto(f"{shown}/r/{SCORED}")
    plots = page.locator("#lengths svg")
    assert [await plots.nth(at).locator("circle").count() > 20 for at in (0, 1)] == [True, True]
    await page.goto(f"{shown}/r/{BROKEN}/g000000")
    trace = page.locator(".problem pre.trace").first
    assert (
        'File "/work/environments/fix_it.py", line 41, in prepare\n    response' in await trace.inner_text()
    )


async def test_pages_of_a_large_run_read_no_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FilesystemStore(tmp_path / "store")
    journal = Journal(store)
    await write_gallery(journal, groups=300)
    read: list[str] = []
    read_many = FilesystemStore.read_many

    async def noted(self: FilesystemStore, keys: list[str]) -> list[bytes | None]:
        read.extend(keys)
        return await read_many(self, keys)

    monkeypatch.setattr(FilesystemStore, "read_many", noted)
    viewed = Viewed(store, TemporalSettings(address="127.0.0.1:1"), tmp_path / "cache", {}, PageAccess(()))
    transport = httpx.ASGITransport(app=Viewer(viewed).application())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

        async def is_read() -> bool:
            return "300/300" in (await client.get("/")).text

        await eventually(is_read, "the index of the run")
        for path in ("/", f"/r/{SCORED}", f"/r/{BEGUN}"):
            assert (await client.get(path)).status_code == 200
        assert [key for key in read if "/turn/" in key or "/call/" in key or key.endswith("/prompt")] == []
        read.clear()
        assert (await client.get(f"/r/{SCORED}")).status_code == 200
        assert len(read) < 40
