"""The end of a rollout waits for no browser."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from clotho.plugins.browser import client
from clotho.plugins.browser.client import SOCKET, BrowserClient
from tests.support import PATIENCE_SECONDS


@pytest.fixture
async def cache(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    with TemporaryDirectory() as folder:  # paths of sockets are short
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        yield Path(folder)


async def test_a_browser_that_hangs_is_not_waited_for(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CLOSE_SECONDS", 0.1)
    ended = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    place = cache / "clotho" / "browsers" / "it" / SOCKET
    place.parent.mkdir(parents=True)
    async with await asyncio.start_unix_server(hang, place):
        try:
            await asyncio.wait_for(BrowserClient("it").close("a-rollout"), PATIENCE_SECONDS)
        finally:
            ended.set()


@pytest.mark.parametrize("there", [False, True])
async def test_a_browser_that_cannot_be_reached_is_left(
    cache: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """The socket isn't there, or its path is longer than a socket's can be."""
    if there:
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache / ("x" * 120)))
    await BrowserClient("it").close("a-rollout")
