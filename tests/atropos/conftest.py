"""One API of Atropos' own, emptied before each test and with a trainer registered."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.atropos.adapter import register_trainer
from tests.atropos_api.service import Api, running


@pytest.fixture(scope="session")
async def stock(folder: Path) -> AsyncIterator[Api]:
    async with running(folder / "api-stock", stock=True) as api:
        yield api


@pytest.fixture
async def api(stock: Api) -> Api:
    await stock.http.get("/reset_data")
    await register_trainer(stock)
    return stock
