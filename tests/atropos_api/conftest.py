"""One API process of ours, emptied before each test: it is always the same file that outlives the kills."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.atropos_api.service import Api, running


@pytest.fixture(scope="session")
async def shared_api(folder: Path) -> AsyncIterator[Api]:
    async with running(folder / "atropos-api") as api:
        yield api


@pytest.fixture
async def api(shared_api: Api) -> Api:
    await shared_api.http.get("/reset_data")
    return shared_api
