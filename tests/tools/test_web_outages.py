"""Failures of the host beneath the web tools: they are no results."""

import asyncio
from pathlib import Path

import pytest

from clotho.errors import HostUnavailable, ServiceUnavailable
from clotho.plugins.web import reading
from clotho.plugins.web.fetching import Document
from tests.tools.test_web_pages import LOOPBACK, extracted, reaching

PAGE = Document("http://fates.test/", b"<p>Clotho spins the thread.</p>", "text/html", None)


async def test_silent_name_servers_are_no_result() -> None:
    async def silent(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def one_name(host: str, port: int) -> list[str]:
        return [LOOPBACK] if host == "example.com" else await silent(host, port)

    bounds = {"seconds": 0.1, "resolve_seconds": 0.2}
    with pytest.raises(ServiceUnavailable, match="resolve names"):
        await extracted("http://fates.test/", reaching(resolve=silent, **bounds))
    found = await extracted("http://fates.test/", reaching(resolve=one_name, **bounds))
    assert "isn't known" in found["error"]


@pytest.mark.parametrize(
    "program",
    ["import no_such_module", "import os; print('ready', flush=True); os.kill(os.getpid(), 9)"],
)
async def test_a_reader_that_never_read_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    broken = tmp_path / "reader.py"
    broken.write_text(program)
    monkeypatch.setattr(reading, "PROGRAM", broken)
    with pytest.raises(HostUnavailable, match="reads a page"):
        await reading.read(PAGE, 1_000)


async def test_a_page_that_the_reader_fails_at_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "reader.py"
    broken.write_text("print('ready', flush=True); raise MemoryError")
    monkeypatch.setattr(reading, "PROGRAM", broken)
    found = await reading.read(PAGE, 1_000)
    assert found["error"] == "The page is too large or too intricate to be read"
