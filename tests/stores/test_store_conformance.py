"""What every store promises; a new backend is one more parameter of the fixture."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from clotho.errors import InvalidInput
from clotho.journal.store import Store
from tests.stores.conftest import Place

SECOND = 1.0
"""What servers round times to."""


@pytest.fixture(params=["filesystem", "named-files", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "named-files":
        # as on a file server
        monkeypatch.setattr(os, "open", _open_named)
    if request.param != "s3":
        return Place(str(tmp_path / "store"))
    place: Place = request.getfixturevalue("s3_place")
    return place


_open = os.open


def _open_named(path: str, flags: int, mode: int = 0o777, **options: int) -> int:
    if flags & os.O_TMPFILE == os.O_TMPFILE:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)
    return _open(path, flags, mode, **options)


@pytest.fixture
async def store(place: Place) -> Store:
    return await asyncio.to_thread(place.open)


async def test_its_identity_is_the_same_for_all_who_open_it(store: Store, place: Place) -> None:
    assert (await asyncio.to_thread(place.open)).identity == store.identity
    assert place.location in store.identity


async def test_the_first_writer_wins(store: Store) -> None:
    assert await store.create("run/g0/r0/turn/0000", b"first")
    assert not await store.create("run/g0/r0/turn/0000", b"second")
    assert await store.read_many(["run/g0/r0/turn/0000"]) == [b"first"]


async def test_one_of_many_racing_writers_wins(store: Store) -> None:
    for number in range(20):
        wins = await asyncio.gather(*(store.create(f"race/{number}", bytes([w])) for w in range(8)))
        assert wins.count(True) == 1
        assert await store.read_many([f"race/{number}"]) == [bytes([wins.index(True)])]


async def test_reads_keep_the_order_asked_for_and_report_what_is_missing(store: Store) -> None:
    for name in "abc":
        await store.create(f"x/{name}", name.encode())
    assert await store.read_many(["x/c", "x/nothing", "x/a", "x/a/below", "y/b"]) == [
        b"c",
        None,
        b"a",
        None,
        None,
    ]


async def test_keys_lists_a_prefix_sorted(store: Store) -> None:
    for key in ("r/g1/scored", "r/g1/r0/prompt", "r/g2/scored", "other/x"):
        await store.create(key, b"")
    assert await store.keys("r/g1/") == ["r/g1/r0/prompt", "r/g1/scored"]
    assert await store.keys("r/") == ["r/g1/r0/prompt", "r/g1/scored", "r/g2/scored"]
    assert await store.keys("nothing/") == []


async def test_the_times_of_keys_and_now_are_of_one_clock(store: Store) -> None:
    before = (await store.written("r/")).now
    for key in ("r/g1/scored", "r/g1/r0/prompt", "other/x"):
        await store.create(key, b"")
    now, at = await store.written("r/")
    assert sorted(at) == await store.keys("r/")
    assert all(before - SECOND <= each <= now + SECOND for each in at.values())
    assert not (await store.written("nothing/")).at


async def test_delete_ignores_what_is_not_there(store: Store) -> None:
    await store.create("a/b", b"x")
    await store.delete(["a/b", "a/c"])
    assert await store.read_many(["a/b"]) == [None]
    assert await store.create("a/b", b"again")


async def test_large_and_empty_blobs(store: Store) -> None:
    large = bytes(range(256)) * 40_000
    assert await store.create("blob/large", large)
    assert await store.create("blob/empty", b"")
    assert await store.read_many(["blob/large", "blob/empty"]) == [large, b""]


async def test_reading_and_deleting_nothing(store: Store) -> None:
    assert await store.read_many([]) == []
    await store.delete([])


async def test_keys_with_characters_that_urls_and_xml_give_a_meaning(store: Store) -> None:
    keys = ["odd/100%25 +&<>'\"=?#", "odd/~campaign", "odd/é漢"]
    for key in keys:
        assert await store.create(key, key.encode())
    assert await store.keys("odd/") == sorted(keys)
    assert await store.read_many(keys) == [key.encode() for key in keys]
    await store.delete(keys)
    assert await store.keys("odd/") == []


OUTSIDE = (
    "..",
    "../beside",
    "run/../../beside",
    "run/..",
    "/etc/passwd",
    "//etc/passwd",
    "run//x",
    "run/./x",
    ".",
    "",
    "run/",
    "run/x\0y",
    "run/\ud800",
    f"run/{'x' * 256}",
    "/".join(["x" * 200] * 6),
)


@pytest.mark.parametrize("key", OUTSIDE)
async def test_no_key_reaches_outside_of_the_store(store: Store, tmp_path: Path, key: str) -> None:
    (tmp_path / "beside").write_bytes(b"somebody else's")
    with pytest.raises(InvalidInput, match="no key of a store"):
        await store.create(key, b"mine")
    with pytest.raises(InvalidInput, match="no key of a store"):
        await store.read_many(["run/fine", key])
    with pytest.raises(InvalidInput, match="no key of a store"):
        await store.delete([key])
    with pytest.raises(InvalidInput, match="no key of a store"):
        await store.keys(f"{key}/")
    with pytest.raises(InvalidInput, match="no key of a store"):
        await store.written(f"{key}/")
    assert (tmp_path / "beside").read_bytes() == b"somebody else's"
