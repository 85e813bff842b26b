"""The browser under pages and calls that hang or can't be answered, and under the ends of its parts."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from clotho.browser import server
from clotho.config import cache_folder
from clotho.tools.browser.client import SOCKET
from clotho.tools.browser.launch import chromium, lacking
from tests.support import eventually
from tests.tools.browse import SECONDS, Browse

pytestmark = pytest.mark.skipif(lacking() is not None, reason=str(lacking()))

HANGING = "setTimeout(() => { for (;;); }, 0), 1"


@pytest.fixture
async def own_server(browse: Browse, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A browser whose server runs in the test's process."""
    scope = "in-this-process"
    monkeypatch.setattr(browse.calls.dispatcher, "scope", scope)
    folder = cache_folder() / "browsers" / scope
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    program = chromium()
    assert program is not None
    serving = asyncio.ensure_future(server.serve(folder, program))

    async def listening() -> bool:
        return serving.done() or (folder / SOCKET).exists()

    await eventually(listening, "the browser's server")
    yield
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


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
