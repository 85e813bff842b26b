"""The store of the how-to page promises what every store does."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from clotho.errors import StoreUnavailable
from clotho.journal.store import Store
from examples.how_to.sqlite_store import SqliteStore
from tests.stores import test_store_conformance

globals().update(
    {name: test for name, test in vars(test_store_conformance).items() if name.startswith("test_")}
)


@dataclass(frozen=True)
class Place:
    """The file of a store, for any process to open."""

    location: str

    def open(self) -> Store:
        return SqliteStore(Path(self.location))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "blobs.sqlite"))


@pytest.fixture
async def store(place: Place) -> Store:
    return await asyncio.to_thread(place.open)


async def test_a_file_that_can_t_be_used_is_an_outage(store: Store, place: Place) -> None:
    Path(place.location).unlink()
    Path(place.location).mkdir()
    with pytest.raises(StoreUnavailable):
        await store.keys("run/")
