"""Backends with the embedded policy's tokenizer for whatever answers at a URL, and a journal for each test."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import Inference
from clotho.models.model_http import ModelHTTP
from clotho.models.rendering.resolve import open_renderer
from clotho.models.token_exact import RenderingThread, TokenExact
from clotho.models.write_ahead import FlushPolicy
from tests.support import PATIENCE_SECONDS

Open = Callable[..., TokenExact]
SPARSE = FlushPolicy(tokens=8, seconds=60.0)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still while a connection is opened is no server that can't be reached."""
    monkeypatch.setattr("clotho.models.model_http.CONNECT_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(FilesystemStore(tmp_path / "store"))


@pytest.fixture(scope="session")
def rendering() -> RenderingThread:
    return RenderingThread(lambda: open_renderer(str(BUNDLED), tool_call_parser="hermes"))


@pytest.fixture
async def open_backend(journal: Journal, rendering: RenderingThread) -> AsyncIterator[Open]:
    """Opens the backend of the server at a URL, another each time, as a process that was started anew would."""
    connections = []

    def opened(
        url: str, inference: Inference = Inference.TOKENS, flush_policy: FlushPolicy = SPARSE
    ) -> TokenExact:
        connections.append(ModelHTTP(url, timeout=PATIENCE_SECONDS))
        return TokenExact(connections[-1], rendering, journal, inference, flush_policy)

    yield opened
    for connection in connections:
        await connection.aclose()


@pytest.fixture
async def direct(embedded_model: EmbeddedModelServer) -> AsyncIterator[httpx.AsyncClient]:
    """The embedded server itself: what it samples for a request is what it always samples for it."""
    async with httpx.AsyncClient(base_url=embedded_model.url, timeout=PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture(scope="session")
def tiny() -> str:
    return TINY
