"""The browser under pages and calls that hang or can't be answered, and under the ends of its parts."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Error

from clotho.config import cache_folder
from clotho.plugins.browser import client as client_module
from clotho.plugins.browser.client import SOCKET, BrowserClient
from clotho.plugins.browser.launch import chromium, lacking
from clotho.plugins.browser.process import server
from clotho.plugins.browser.process.session import Session
from tests.support import PATIENCE_SECONDS, eventually
from tests.tools.browse import SECONDS, Browse, end, processes, ref

pytestmark = pytest.mark.skipif(lacking() is not None, reason=str(lacking()))

HANGING = "setTimeout(() => { for (;;); }, 0), 1"


@pytest.fixture
async def own_server(browse: Browse, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A browser whose server runs in the test's process."""
    scope = f"own-{os.getpid()}"
    monkeypatch.setattr(browse.calls.dispatcher, "scope", scope)
    folder = cache_folder() / "browsers" / scope
    (folder / "tmp").mkdir(parents=True)
    program = chromium()
    assert program is not None
    serving = asyncio.ensure_future(server.serve(folder, program))

    async def listening() -> bool:
        return serving.done() or (folder / SOCKET).exists()

    await eventually(listening, "the browser's server")
    yield
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    shutil.rmtree(folder, ignore_errors=True)  # the driver may be at it too


async def test_calls_that_have_no_answer_are_told_to_the_model(browse: Browse) -> None:
    await browse.to("/")
    assert not (await browse("navigate", url="http://["))["success"]
    await browse.to("/")
    for expression in ("(() => { const a = {}; a.self = a; return a })()", "10n ** 5000n"):
        answer = await browse("console", expression=expression)
        assert not answer["success"] and answer["error"].startswith("The call failed"), answer


async def test_what_a_page_makes_up_is_bounded_and_is_text(browse: Browse) -> None:
    await browse.to("/")
    assert (await browse("console", expression="'a\\ud800b'"))["result"] == "a?b"
    made_up = "Array.prototype.map = () => 'x'.repeat(5_000_000); 1"
    assert (await browse("console", expression=made_up))["success"]
    answer = await browse("get_images")
    assert not answer["success"] and "too many to be shown" in answer["error"]
    long = "history.pushState(0, '', '#' + 'x'.repeat(100_000)), 1"
    assert (await browse("console", expression=long))["success"]
    assert len((await browse("snapshot"))["url"]) == 8_000


@pytest.mark.usefixtures("own_server")
async def test_a_page_that_hangs_after_a_call_is_closed(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.to("/")
    with monkeypatch.context() as patched:
        patched.setattr(server, "STUCK_SECONDS", 1.0 - SECONDS)
        assert await browse("console", expression=HANGING) == {"success": False, "error": server.STUCK}
    shown = await browse("snapshot")
    assert shown["success"] and shown["url"] == "about:blank"
    assert (await browse.to("/"))["title"] == "Looms"


@pytest.mark.usefixtures("own_server")
async def test_a_page_that_ends_after_a_call_is_opened_again_and_the_model_is_told(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Session.saved

    async def ends_before(session: Session) -> dict[str, Any]:
        await session.page.close()
        return await save(session)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "saved", ends_before)
        assert (await browse.to("/form"))["success"]
    shown = await browse("snapshot")
    assert "was started again" in shown["note"] and shown["url"].endswith("/form"), shown


@pytest.mark.usefixtures("own_server")
async def test_a_page_whose_storage_cannot_be_read_stays_open(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable(context: BrowserContext) -> None:
        raise Error("BrowserContext.storage_state: no answer")

    form = await browse.to("/form")
    with monkeypatch.context() as patched:
        patched.setattr(BrowserContext, "storage_state", unreadable)
        assert (await browse("type", ref=ref(form, "Name"), text="Ariadne"))["success"]
    shown = await browse("snapshot")
    assert "Ariadne" in shown["snapshot"] and "note" not in shown, shown


@pytest.mark.slow
async def test_a_page_that_cannot_be_opened_again_is_told_to_the_model(
    browse: Browse, own_browser: Path
) -> None:
    once = await browse.to("/once")
    await end(own_browser, ["/relay.py"])
    shown = await browse("snapshot")
    assert f"{once['url']} couldn't be opened again: net::ERR_EMPTY_RESPONSE" in shown["note"], shown
    assert shown["title"] != once["title"]


async def test_a_browser_without_its_driver_is_started_again(browse: Browse, own_browser: Path) -> None:
    form = await browse.to("/form")
    [driver] = children(*processes(f"clotho.plugins.browser.process.server {own_browser}"))
    os.kill(driver, signal.SIGKILL)
    refused = await browse("type", ref=ref(form, "Name"), text="Ariadne")
    assert not refused["success"] and "was started again" in refused["error"], refused
    assert (await browse("type", ref=ref(refused, "Name"), text="Ariadne"))["success"]


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for each in found for child in each.read_text().split()]


async def test_a_call_that_a_browser_never_got_is_made(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = f"gone-{os.getpid()}"
    monkeypatch.setattr(browse.calls.dispatcher, "scope", scope)
    folder = cache_folder() / "browsers" / scope
    folder.mkdir(parents=True)

    async def go(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (folder / SOCKET).unlink()
        await reader.readline()
        writer.close()

    async with await asyncio.start_unix_server(go, folder / SOCKET):
        assert (await browse.to("/"))["title"] == "Looms"
    await end(folder)
    shutil.rmtree(folder, ignore_errors=True)  # the driver may be at it too


@pytest.mark.usefixtures("own_server")
async def test_a_page_opened_while_another_rollout_s_is_closed_keeps_its_network(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end_it, close = asyncio.Event(), asyncio.Event(), Session.close_context

    async def slow(session: Session) -> None:
        if session.seconds == SECONDS:
            begun.set()
            await end_it.wait()
        await close(session)

    await browse.to("/")
    monkeypatch.setattr(Session, "close_context", slow)
    monkeypatch.setattr(client_module, "CLOSE_SECONDS", PATIENCE_SECONDS)
    client = BrowserClient(browse.calls.dispatcher.scope)
    closing = asyncio.ensure_future(client.close(browse.calls.rollout))
    await begun.wait()
    browse.patience(SECONDS + 1)
    assert (await browse.to("/"))["success"]
    end_it.set()
    await closing
    assert (await browse.to("/form"))["success"]
