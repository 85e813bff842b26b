"""The viewer's pages in Chromium, of real runs: what they show, and what a model's text can't do there."""

from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Page

from clotho.embedded.model import EmbeddedModelServer
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import Inference
from clotho.models.rendering.rendering import Rendering
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, start
from tests.viewer.conftest import StartViewer
from tests.viewer.stored import write_group, write_run

OWNED = "document.title = 'owned'"
HOSTILE = (
    f'<script>{OWNED}</script><img src=x onerror="{OWNED}"><svg onload="{OWNED}"></pre></article>'
    f'<a href="javascript:{OWNED}">press</a>\x1b[31m\u202egnp {{{{ 7 * 7 }}}}'
)


async def opened(browser: Browser, url: str) -> tuple[Page, list[str]]:
    """A page, and everything that goes wrong on it: messages of the console, and requests to elsewhere."""
    context = await browser.new_context(color_scheme="dark")
    context.set_default_timeout(PATIENCE_SECONDS * 1_000)
    page, wrong = await context.new_page(), list[str]()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    origin = "/".join(url.split("/")[:3])
    page.on("request", lambda request: None if request.url.startswith(origin) else wrong.append(request.url))
    await page.goto(url)
    return page, wrong


async def test_a_models_text_is_shown_and_nothing_else(
    cluster: Cluster, browser: Browser, view: StartViewer
) -> None:
    hostile = ScriptedTurn(
        content=f"First. {HOSTILE}",
        reasoning=f"I think. {HOSTILE}",
        calls=(
            ScriptedCall(
                name="terminal", arguments={"command": f"echo -n 1 > /work/score; echo '{HOSTILE}'"}
            ),
        ),
    )
    last = ScriptedTurn(content=f"Done. {HOSTILE}")
    script = Script(conversations=(Conversation(variants=((hostile, last), (last,))),))
    async with serving(ScriptedModel(script)) as url:
        await (await start(cluster, "viewed", url, groups=2, group_size=2)).result()
    url = await view(cluster.store, "--temporal", cluster.address)
    page, wrong = await opened(browser, f"{url}/")
    await page.get_by_role("link", name="viewed", exact=True).click()
    await page.locator("#head .state-scored").wait_for()
    await page.get_by_role("link", name="g000001").click()
    table = await page.locator("#siblings").inner_text()
    assert "r0" in table and "r1" in table
    await page.get_by_role("link", name="r0", exact=True).click()
    await page.get_by_role("button", name="Unfold all").click()
    shown = await page.locator("#conversation").inner_text()
    for beginning in ("First.", "I think.", "Done."):
        assert f"{beginning} <script>{OWNED}</script><img src=x" in shown
    assert "{{ 7 * 7 }}" in shown and "\x1b" not in shown and "\u202e" not in shown
    assert "task 1" in shown and "exit code 0" in shown.lower()
    assert "2 turns" in await page.locator("#reward").inner_text()
    assert await page.locator("main script, main img, [href^=javascript], svg[onload]").count() == 0
    assert await page.title() == "viewed/g000001/r0 · clotho view"
    await page.goto(f"{url}/r/viewed")
    await page.get_by_label("Search in the transcripts").fill("echo -n 1 > /work/score; echo '<SCRIPT>")
    await page.get_by_role("button", name="Search", exact=True).click()
    await page.locator(".results li").nth(1).wait_for()
    assert await page.locator(".results li").count() == 2
    await page.locator(".results a").first.click()
    await page.locator("#turn-0:target").wait_for()
    await page.goto(f"{url}/r/viewed/g000001")
    await page.get_by_role("button", name="Compare A and B").click()
    await page.get_by_text("They first differ at").wait_for()
    assert await page.locator("#a-turn-1, #b-turn-0").count() == 2
    entry = await httpx.AsyncClient(timeout=PATIENCE_SECONDS).get(f"{url}/entry/viewed/g000001/r0/turn/0000")
    assert entry.headers["content-type"].startswith("text/plain") and OWNED in entry.text
    assert wrong == []


@pytest.mark.slow
async def test_tokens_are_shown_with_their_probabilities_and_masks(
    cluster: Cluster, embedded_model: EmbeddedModelServer, browser: Browser, view: StartViewer
) -> None:
    handle = await cluster.start(
        "viewed-tokens",
        f"{embedded_model.url}/v1",
        environment="file_tasks",
        model=embedded_model.model,
        inference=Inference.TOKENS,
        rendering=Rendering(tool_call_parser="hermes"),
    )
    await handle.result()
    url = await view(cluster.store, "--temporal", cluster.address)
    page, wrong = await opened(browser, f"{url}/r/viewed-tokens/g000000/r0")
    await page.get_by_role("link", name="Tokens", exact=True).click()
    text = await page.locator(".tokens").inner_text()
    assert "<|im_start|>assistant" in text
    sampled, masked = page.locator(".tokens .tok:not(.masked)"), page.locator(".tokens .masked")
    assert "logprob" in (await sampled.first.get_attribute("title") or "")
    assert "masked out" in (await masked.first.get_attribute("title") or "")
    assert wrong == []


@pytest.mark.slow
async def test_a_page_follows_a_run_that_goes_on(tmp_path: Path, browser: Browser, view: StartViewer) -> None:
    journal = Journal(FilesystemStore(tmp_path / "store"))
    await write_run(journal, "live", 3)
    await write_group(journal, "live", 0, 0.0, 1.0)
    url = await view(tmp_path / "store", CLOTHO_TEMPORAL__ADDRESS="127.0.0.1:1")
    page, wrong = await opened(browser, f"{url}/r/live")
    await page.locator("#groups").get_by_role("link", name="g000000").wait_for()
    await write_group(journal, "live", 2, 1.0, 1.0)
    await page.locator("#groups").get_by_role("link", name="g000002").wait_for()
    assert "2" in await page.locator("#head .fact").first.inner_text()
    await page.get_by_role("link", name="mean").click()
    await page.locator("#groups [aria-sort=descending]").wait_for()
    assert await page.locator("#groups tbody th").all_inner_texts() == ["g000002", "g000000"]
    assert wrong == []


async def test_only_this_machines_names_are_answered_and_every_answer_has_a_policy(
    tmp_path: Path, view: StartViewer
) -> None:
    await write_run(Journal(FilesystemStore(tmp_path / "store")), "guarded", 1)
    url = await view(tmp_path / "store", CLOTHO_TEMPORAL__ADDRESS="127.0.0.1:1")
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        for path in ("/", "/r/guarded", "/static/viewer.css", "/entry/~runs/guarded"):
            answer = await client.get(path)
            assert answer.status_code == 200, path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        for host in ("rebound.example", "127.0.0.1.example:80", "", "[::1"):
            assert (await client.get("/", headers={"host": host})).status_code in (400, 403), host
        for path in (
            "/r/none",
            "/r/guarded/g000009",
            "/r/A",
            "/r/guarded/g000000/r0",
            "/entry/~runs/../x",
            "/no",
        ):
            answer = await client.get(path)
            assert answer.status_code == 404, path
            assert "can't be shown" in answer.text
        assert (await client.post("/r/guarded")).status_code == 403
