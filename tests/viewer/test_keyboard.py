"""The pages by keyboard alone, in Chromium: everything is reached, and the focus is seen."""

from pathlib import Path

from playwright.async_api import Browser, Page

from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from tests.viewer.conftest import StartViewer
from tests.viewer.stored import write_group, write_run
from tests.viewer.test_pages import opened

MOST_STEPS = 100
FOCUSED = """() => {
    const focused = document.activeElement;
    const name = focused.getAttribute("aria-label") || focused.innerText || focused.name;
    return [focused.tagName, name, getComputedStyle(focused).outlineStyle];
}"""
UNREACHABLE = "main :is([onclick], [role=button], [tabindex]:not([tabindex='0']))"
"""What only a mouse would use."""


async def walk(page: Page) -> list[str]:
    """Press Tab to the end of the page; return the names of what had the focus, which is always visible."""
    names = list[str]()
    for _ in range(MOST_STEPS):
        await page.keyboard.press("Tab")
        tag, name, outline = await page.evaluate(FOCUSED)
        if tag == "BODY":
            return names
        assert outline == "solid", (tag, name, outline)
        names.append(name)
    raise AssertionError(f"the focus doesn't leave the page: {names}")


async def test_every_page_is_used_by_keyboard_with_a_focus_that_is_seen(
    tmp_path: Path, browser: Browser, view: StartViewer
) -> None:
    journal = Journal(FilesystemStore(tmp_path / "store"))
    await write_run(journal, "keys", 2)
    await write_group(journal, "keys", 0, 0.0, 1.0)
    await write_group(journal, "keys", 1, 1.0, 1.0)
    url = await view(tmp_path / "store", CLOTHO_TEMPORAL__ADDRESS="127.0.0.1:1")
    page, wrong = await opened(browser, f"{url}/r/keys")
    await page.locator("#groups").get_by_role("link", name="g000001", exact=True).wait_for()
    names = await walk(page)
    assert names[:2] == ["Skip to the content", "clotho"]
    columns = ["group", "mean", "spread", "turns", "tokens", "longest", "repairs"]
    assert [name for name in names if name in columns] == columns
    assert {"g000000", "r0: reward 0", "g000001", "Search", "Filter"} <= set(names)
    assert await page.locator(UNREACHABLE).count() == 0
    await page.get_by_role("link", name="mean", exact=True).focus()
    await page.keyboard.press("Enter")
    await page.locator("#groups [aria-sort=descending]").wait_for()
    assert await page.locator("#groups tbody th").all_inner_texts() == ["g000001", "g000000"]
    await page.goto(f"{url}/r/keys/g000000")
    assert {"r0", "r1", "r0 as A", "r1 as B", "Compare A and B"} <= set(await walk(page))
    await page.goto(f"{url}/search/keys?text=x")
    await page.locator("input:focus").wait_for()
    assert await page.evaluate(FOCUSED) == ["INPUT", "text", "solid"]
    assert wrong == []
