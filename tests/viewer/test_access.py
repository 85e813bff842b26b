"""Who may see the pages of `clotho view`."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import Browser

from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from tests.support import PATIENCE_SECONDS
from tests.viewer.conftest import StartViewer
from tests.viewer.stored import write_run
from tests.viewer.test_pages import opened

AWAY = {"CLOTHO_TEMPORAL__ADDRESS": "127.0.0.1:1"}


async def guarded(folder: Path, view: StartViewer) -> tuple[str, str]:
    """The address that a viewer with a token prints, and the token."""
    await write_run(Journal(FilesystemStore(folder / "store")), "guarded", 1)
    address = await view(folder / "store", "--operate", guard="", **AWAY)
    return address, address.partition("?token=")[2]


@pytest.mark.attack("listeners", "a request without the token, where one is asked for")
async def test_pages_need_the_token_that_the_address_had_once(tmp_path: Path, view: StartViewer) -> None:
    address, token = await guarded(tmp_path, view)
    file = tmp_path / "cache" / "clotho" / "tokens" / str(urlsplit(address).port)
    assert len(token) > 30 and file.read_text() == token
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    page = address.partition("?")[0] + "r/guarded"
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        for path in (page, f"{page}?token=wrong", page.replace("r/guarded", "static/viewer.css")):
            refused = await client.get(path)
            assert (refused.status_code, "guarded" in refused.text) == (401, False), path
        assert (await client.get(page, headers={"authorization": f"Bearer {token}"})).status_code == 200
        entered = await client.get(f"{page}?sort=mean&token={token}")
        assert (entered.status_code, entered.headers["location"]) == (303, "/r/guarded?sort=mean")
        cookie = entered.headers["set-cookie"]
        assert token not in cookie and cookie.endswith("; Path=/; HttpOnly; SameSite=Lax")
        assert (await client.get(page)).status_code == 200
        # Any page may lead a browser here, but make it do nothing.
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert (await client.get(page, headers=link)).status_code == 200
        for foreign in ({**link, "sec-fetch-dest": "iframe"}, {"sec-fetch-site": "cross-site"}):
            assert (await client.get(page, headers=foreign)).status_code == 403
        operate = address.partition("?")[0] + "operate"
        for headers in (link, {"origin": "http://127.0.0.1:1"}, {}):
            assert (await client.post(operate, headers=headers)).status_code == 403
        odd = {"cookie": f"we ird{{}}=x; =; {cookie.partition(';')[0]}"}
        assert (await httpx.AsyncClient(timeout=PATIENCE_SECONDS).get(page, headers=odd)).status_code == 200
        away = f"{address.partition('?')[0]}/evil.example/?token={token}"
        assert (await client.get(away)).headers["location"] == "/evil.example/"


@pytest.mark.attack("listeners", "300 half-sent requests to the viewer, which would shut everyone else out")
async def test_half_sent_requests_shut_nobody_out(tmp_path: Path, view: StartViewer) -> None:
    """Neither headers nor bodies that don't end; and they are hung up on."""
    address, token = await guarded(tmp_path, view)
    port = urlsplit(address).port
    headers = f"host: 127.0.0.1\r\norigin: http://127.0.0.1\r\nauthorization: Bearer {token}"
    body = f"POST /operate HTTP/1.1\r\n{headers}\r\ncontent-length: 100\r\n\r\ntoken="
    begun = [b"GET / HTTP/1.1\r\nhost:", body.encode()]
    connections = []
    for number in range(300):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun[number % 2])
        connections.append((reader, writer))
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        shown = await client.get(address.partition("?")[0], headers={"authorization": f"Bearer {token}"})
        assert shown.status_code == 200
    for reader, writer in connections:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await reader.read()
        writer.close()


async def test_a_browser_is_let_in_by_the_printed_address(
    tmp_path: Path, view: StartViewer, browser: Browser
) -> None:
    address, _ = await guarded(tmp_path, view)
    page, wrong = await opened(browser, address)
    await page.get_by_role("link", name="guarded", exact=True).click()
    await page.locator("#head").wait_for()
    assert "token" not in page.url and wrong == []
