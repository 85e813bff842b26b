"""Backends with the embedded policy's tokenizer for whatever answers at a URL, and a journal for each test."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.inference.base import Inference
from clotho.inference.model_http import ModelHTTP
from clotho.inference.rendering_thread import RenderingThread
from clotho.inference.token_exact import TokenExact
from clotho.inference.write_ahead import Pace
from clotho.journal import Journal
from clotho.rendering.resolve import open_renderer
from clotho.store.filesystem import FilesystemStore

Open = Callable[..., TokenExact]
SPARSE = Pace(tokens=8, seconds=60.0)


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

    def opened(url: str, inference: Inference = Inference.TOKENS, pace: Pace = SPARSE) -> TokenExact:
        connections.append(ModelHTTP(url, timeout=10.0))
        return TokenExact(connections[-1], rendering, journal, inference, pace)

    yield opened
    for connection in connections:
        await connection.aclose()


@pytest.fixture
async def direct(embedded_model: EmbeddedModelServer) -> AsyncIterator[httpx.AsyncClient]:
    """The embedded server itself: what it samples for a request is what it always samples for it."""
    async with httpx.AsyncClient(base_url=embedded_model.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def tiny() -> str:
    return TINY
