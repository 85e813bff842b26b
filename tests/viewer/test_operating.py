"""Operations from the viewer's pages, and who may ask for them."""

import threading

import httpx
import pytest
from playwright.async_api import Browser

from clotho.runs.pauses import reason_for
from clotho.testing.script import Conversation, Question, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, start
from tests.viewer.conftest import StartViewer
from tests.viewer.test_pages import opened
from tests.workflows.scripts import run, say

RUN = "operated"


@pytest.mark.slow
async def test_a_run_is_paused_and_resumed_by_hand(
    cluster: Cluster, browser: Browser, view: StartViewer
) -> None:
    released = threading.Event()
    script = Script(conversations=(Conversation(variants=((run("true"), say("Done.")),)),))

    def waiting(question: Question) -> ScriptedTurn:
        released.wait(500.0)
        return script.answer(question)

    journal = cluster.open_journal()
    try:
        async with serving(ScriptedModel(script, waiting)) as model:
            handle = await start(cluster, RUN, model, group_size=2)
            url = await view(cluster.store, "--operate", "--temporal", cluster.address)
            page, wrong = await opened(browser, f"{url}/r/{RUN}")
            await page.get_by_role("link", name="Pause", exact=True).click()
            await page.get_by_role("button", name="Pause", exact=True).click()
            await page.get_by_text(f"{RUN} is told to pause").wait_for()
            assert await reason_for(journal, RUN) == "by hand"
            await page.get_by_role("link", name=RUN, exact=True).click()
            await page.get_by_text("Paused: by hand").wait_for()
            await page.get_by_role("link", name="Resume", exact=True).click()
            await page.get_by_role("button", name="Resume", exact=True).click()
            await page.get_by_text(f"{RUN} goes on").wait_for()
            assert await reason_for(journal, RUN) is None
            rollout = f"{RUN}/g000000/r0"
            await page.goto(f"{url}/confirm/pause/{rollout}")
            await page.get_by_role("button", name="Pause", exact=True).click()
            for shown in (RUN, rollout):
                await page.goto(f"{url}/r/{shown}")
                await page.get_by_text("Paused: ").wait_for()
            await page.goto(f"{url}/r/{RUN}/g000000")
            await page.get_by_role("row").filter(has_text="paused").wait_for()
            await page.goto(f"{url}/r/{rollout}")
            await page.get_by_role("link", name="Resume", exact=True).click()
            await page.get_by_role("button", name="Resume", exact=True).click()
            await page.get_by_text(f"{rollout} goes on").wait_for()
            released.set()
            await handle.result()
            await page.goto(f"{url}/confirm/retry/{RUN}/g000000")
            await page.get_by_role("button", name="Retry", exact=True).click()
            await page.get_by_text(f"{RUN}/g000000 is scored: there is nothing to retry").wait_for()
    finally:
        released.set()
    # The browser tells of the last answer's status.
    assert [each for each in wrong if "409" not in each] == []


@pytest.mark.attack("listeners", "a web page that operates runs through the viewer")
async def test_only_a_form_of_this_viewer_operates(cluster: Cluster, view: StartViewer) -> None:
    url = await view(cluster.store, "--operate", "--temporal", cluster.address)
    order = {"operation": "pause", "name": "no-run"}
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        form = (await client.get("/confirm/pause/no-run")).text
        token = form.partition('name="token" value="')[2].partition('"')[0]
        assert len(token) > 20
        foreign: list[dict[str, str]] = [
            {},
            {"origin": "null"},
            {"origin": "http://rebound.example"},
            {"origin": url, "sec-fetch-site": "cross-site"},
        ]
        for headers in foreign:
            answer = await client.post("/operate", data={**order, "token": token}, headers=headers)
            assert answer.status_code == 403, headers
        own = {"origin": url}
        for wrong in ("", "x", "ü"):
            answer = await client.post("/operate", data={**order, "token": wrong}, headers=own)
            assert answer.status_code == 403, wrong
        answer = await client.post("/operate", data={**order, "token": token}, headers=own)
        assert answer.status_code == 409 and "there is no run" in answer.text
        answer = await client.post("/operate", content=b"x" * 5_000, headers=own)
        assert answer.status_code == 413
        answer = await client.post(
            "/operate", data={"operation": "delete", "name": "x", "token": token}, headers=own
        )
        assert answer.status_code == 404


async def test_a_viewer_changes_nothing_unless_it_was_started_to(cluster: Cluster, view: StartViewer) -> None:
    url = await view(cluster.store, "--temporal", cluster.address)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        assert (await client.get("/confirm/pause/x")).status_code == 404
        answer = await client.post("/operate", data={"operation": "pause"}, headers={"origin": url})
        assert answer.status_code == 404
