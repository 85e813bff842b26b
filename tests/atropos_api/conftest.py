"""One API process of ours, emptied before each test that shares it."""

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


@pytest.fixture
async def own_api(tmp_path: Path) -> AsyncIterator[Api]:
    async with running(tmp_path) as api:
        yield api
