"""S3 that is slow, drops connections, answers late or not at all, or refuses half-way through a run."""

import asyncio
import dataclasses
from contextlib import suppress
from pathlib import Path

import pytest

from clotho.errors import JournalCorrupt, StoreUnavailable
from clotho.journal import Journal
from clotho.journal.store import Store
from clotho.plugins.s3.settings import S3Settings
from clotho.plugins.s3.store import ATTEMPTS
from clotho.rollouts.verification import EpochEntry
from tests.s3_server import S3Server
from tests.stores import proxy
from tests.stores.conftest import Place
from tests.stores.proxy import Disturbance, DisturbedConnection
from tests.support import PATIENCE_SECONDS, eventually

KEY = "run/g000000/r0/epoch/0"
MINE = EpochEntry(reason="mine")
HASTE_SECONDS = 1.0
"""The time limit of a request that is never answered."""
MANY_ATTEMPTS = 40
"""More of those than a server that stands still for a minute costs."""


@pytest.mark.parametrize(
    "disturbance",
    [proxy.request_lost, proxy.answer_lost, proxy.answer_never, proxy.refused(500, "InternalError")],
)
async def test_who_was_first_is_told_so_though_an_answer_went_missing(
    disturbed_place: Place,
    connection: DisturbedConnection,
    monkeypatch: pytest.MonkeyPatch,
    disturbance: Disturbance,
) -> None:
    store = await opened(disturbed_place, disturbance, monkeypatch)
    connection.disturb("PUT", disturbance)
    assert await store.create("a/b", b"mine")
    assert await store.read_many(["a/b"]) == [b"mine"]
    assert not await store.create("a/b", b"mine"), "another call, though its bytes are the same"


async def opened(place: Place, disturbance: Disturbance, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A patient store; where it is to wait in vain, one that soon asks again, as often as it takes."""
    if disturbance is proxy.answer_never:
        monkeypatch.setattr("clotho.plugins.s3.store.ATTEMPTS", MANY_ATTEMPTS)
        hasty = place.s3.model_copy(update={"timeout": HASTE_SECONDS})
        place = dataclasses.replace(place, s3=hasty)
    return await asyncio.to_thread(place.open)


async def test_who_was_second_is_told_so_though_an_answer_went_missing(
    disturbed: Store, connection: DisturbedConnection
) -> None:
    await disturbed.create("a/b", b"same")
    connection.disturb("PUT", proxy.answer_lost, times=ATTEMPTS - 1)
    assert not await disturbed.create("a/b", b"same")


async def test_a_journal_entry_whose_answer_was_lost_is_written_once(
    disturbed: Store, connection: DisturbedConnection
) -> None:
    journal = Journal(disturbed)
    connection.disturb("PUT", proxy.answer_lost)
    assert await journal.write(KEY, MINE) == MINE
    assert await journal.write(KEY, EpochEntry(reason="theirs")) == MINE
    connection.disturb("PUT", proxy.answer_lost)
    assert await journal.append("run/endpoints/", MINE) == 0
    assert await disturbed.keys("run/endpoints/") == ["run/endpoints/000000"]


async def test_a_write_that_failed_for_good_and_happened_is_found_by_the_next_attempt(
    disturbed: Store, connection: DisturbedConnection
) -> None:
    """As when a worker's connection dies after the last attempt: no second call is paid."""
    journal, calls = Journal(disturbed), []

    async def work() -> EpochEntry:
        calls.append(1)
        return EpochEntry(reason=f"call {len(calls)}")

    connection.disturb("PUT", proxy.answer_lost, times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        await journal.once(KEY, EpochEntry, work)
    assert (await journal.once(KEY, EpochEntry, work)).reason == "call 1"


@pytest.mark.parametrize("conflicts", [1, 3])
async def test_a_conflict_with_a_write_under_way_is_tried_again(
    disturbed: Store, connection: DisturbedConnection, conflicts: int
) -> None:
    conflict = proxy.refused(409, "ConditionalRequestConflict")
    connection.disturb("PUT", conflict, times=conflicts)
    assert await disturbed.create("a/b", b"first")
    connection.disturb("PUT", conflict, times=conflicts)
    assert not await disturbed.create("a/b", b"second")


async def test_a_key_that_is_taken_before_its_object_can_be_read_is_tried_again(
    disturbed: Store, connection: DisturbedConnection
) -> None:
    """As versitygw refuses it now and then, when two write at once."""
    connection.disturb("PUT", proxy.refused(412, "PreconditionFailed"))
    assert await disturbed.create("a/b", b"first")
    assert not await disturbed.create("a/b", b"second")
    assert await disturbed.read_many(["a/b"]) == [b"first"]


async def test_a_conflict_that_lasts_is_an_outage(
    disturbed: Store, connection: DisturbedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clotho.plugins.s3.bucket.CONFLICT_PAUSES_SECONDS", (0.01, 0.01))
    connection.disturb("PUT", proxy.refused(409, "ConditionalRequestConflict"), times=3)
    with pytest.raises(StoreUnavailable, match="ConditionalRequestConflict"):
        await disturbed.create("a/b", b"first")


@pytest.mark.parametrize(
    "disturbance",
    [
        proxy.request_lost,
        proxy.answer_broken_off,
        proxy.answer_damaged,
        proxy.answer_never,
        proxy.refused(503, "SlowDown"),
    ],
)
async def test_reads_survive_a_bad_answer(
    disturbed_place: Place,
    connection: DisturbedConnection,
    monkeypatch: pytest.MonkeyPatch,
    disturbance: Disturbance,
) -> None:
    store = await opened(disturbed_place, disturbance, monkeypatch)
    await store.create("a/b", b"x" * 100_000)
    connection.disturb("GET", disturbance)
    assert await store.read_many(["a/b", "a/c"]) == [b"x" * 100_000, None]


@pytest.mark.parametrize("disturbance", [proxy.answer_broken_off, proxy.answer_damaged])
async def test_a_bad_answer_about_a_blob_that_is_not_there_is_read_again(
    disturbed: Store, connection: DisturbedConnection, disturbance: Disturbance
) -> None:
    connection.disturb("GET", disturbance)
    assert await disturbed.read_many(["a/c"]) == [None]


@pytest.mark.parametrize(
    "disturbance", [proxy.answer_broken_off, proxy.answer_damaged, proxy.refused(503, "ServiceUnavailable")]
)
async def test_a_read_that_stays_bad_is_an_outage_and_not_a_wrong_blob(
    disturbed: Store, connection: DisturbedConnection, disturbance: Disturbance
) -> None:
    await disturbed.create("a/b", b"x" * 1_000)
    connection.disturb("GET", disturbance, times=100)
    with pytest.raises(StoreUnavailable):
        await disturbed.read_many(["a/b"])


async def test_attempts_are_bounded_in_number_and_time(
    disturbed_place: Place, connection: DisturbedConnection
) -> None:
    hasty = dataclasses.replace(disturbed_place, s3=S3Settings(endpoint=connection.url, timeout=0.25))

    async def taken() -> Store | None:
        with suppress(StoreUnavailable):  # the server stood still for a moment
            return await asyncio.to_thread(hasty.open)
        return None

    store = await eventually(taken, "a server that answers at once")
    before = connection.count("PUT")
    connection.disturb("PUT", proxy.answer_never, times=100)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(StoreUnavailable):
            await store.create("a/b", b"x")

    async def arrived() -> bool:
        return connection.count("PUT") - before >= ATTEMPTS

    await eventually(arrived, "every attempt")
    assert connection.count("PUT") - before == ATTEMPTS


async def test_a_write_is_one_round_trip(disturbed: Store, connection: DisturbedConnection) -> None:
    """Asked with an Expect header, a server that doesn't answer it costs another second."""
    connection.requests.clear()
    assert await disturbed.create("a/b", b"x")
    [head] = connection.requests
    assert "expect:" not in head.lower()


async def test_the_event_loop_is_free_while_the_server_is_slow(
    disturbed: Store, connection: DisturbedConnection
) -> None:
    """The server answers once the loop says so: a read on the loop itself would wait in vain."""
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(request: bytes, forward: proxy.Forward) -> bytes:
        asked.set()
        await goes_on.wait()
        return await forward(request)

    connection.disturb("GET", slow)
    reading = asyncio.create_task(disturbed.read_many(["a/b"]))
    await asked.wait()
    assert not reading.done()
    goes_on.set()
    assert await reading == [None]


async def test_a_server_that_comes_back_is_used_again(
    disturbed: Store, connection: DisturbedConnection
) -> None:
    await connection.stop()
    with pytest.raises(StoreUnavailable, match="Could not connect"):
        await disturbed.create("a/b", b"x")
    await connection.start()
    assert await disturbed.create("a/b", b"x")


async def test_something_else_that_answers_is_an_outage(
    disturbed: Store, connection: DisturbedConnection
) -> None:
    connection.disturb("GET", proxy.not_http, times=ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        await disturbed.keys("a/")


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (400, "ExpiredToken", "renew the AWS credentials"),
        (403, "AccessDenied", "allow s3:ListBucket"),
        (403, "RequestTimeTooSkewed", "set this machine's clock"),
        (404, "NoSuchBucket", "create the bucket"),
    ],
)
async def test_what_is_refused_during_a_run_waits_for_an_operator(
    disturbed: Store, connection: DisturbedConnection, status: int, code: str, remedy: str
) -> None:
    """Failing here would end every rollout in flight for something that takes a minute to mend."""
    connection.disturb("PUT", proxy.refused(status, code))
    with pytest.raises(StoreUnavailable, match=f"{code}.*{remedy}"):
        await disturbed.create("a/b", b"x")
    assert await disturbed.create("a/b", b"x")


async def test_one_key_that_cannot_be_deleted_is_reported(
    disturbed: Store, connection: DisturbedConnection
) -> None:
    await disturbed.create("a/b", b"x")
    body = b"<DeleteResult><Error><Key>a/b</Key><Code>AccessDenied</Code></Error></DeleteResult>"

    async def half_done(request: bytes, forward: proxy.Forward) -> bytes:
        return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    connection.disturb("POST", half_done)
    with pytest.raises(StoreUnavailable, match=r"AccessDenied.*s3:DeleteObject"):
        await disturbed.delete(["a/b", "a/c"])


async def test_renewed_credentials_are_picked_up_without_a_restart(
    s3_place: Place, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "aws-credentials"

    def keep(user: str, secret: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {user}\naws_secret_access_key = {secret}\n")

    await s3_server.create_user("rotated", "first-secret", role="admin")
    keep("rotated", "first-secret")
    store = await asyncio.to_thread(s3_place.open)
    await s3_server.delete_user("rotated")
    keep(s3_server.access_key, s3_server.secret_key)
    with pytest.raises(StoreUnavailable) as refused:
        await store.create("a/b", b"x")
    assert "first-secret" not in str(refused.value)
    assert await store.create("a/b", b"x")


@pytest.mark.slow
async def test_more_keys_than_fit_one_request(s3_place: Place) -> None:
    store = await asyncio.to_thread(s3_place.open)
    keys = [f"many/{number:06}" for number in range(1_010)]
    await asyncio.gather(*(store.create(key, key.encode()) for key in keys))
    assert await store.keys("many/") == keys
    backwards = keys[::-10]
    assert await store.read_many(backwards) == [key.encode() for key in backwards]
    await store.delete(keys)
    assert await store.keys("many/") == []


async def test_looking_up_numbered_entries_costs_one_list(
    disturbed: Store, connection: DisturbedConnection
) -> None:
    journal = Journal(disturbed)
    connection.requests.clear()
    for number in range(3):
        assert await journal.append("run/endpoints/", MINE) == number
    assert (connection.count("GET"), connection.count("PUT")) == (3, 3)
    connection.requests.clear()
    assert await Journal(disturbed).latest("run/endpoints/", EpochEntry) == MINE
    assert connection.count("GET") == 2


async def test_two_journals_return_the_entry_of_whichever_was_first(
    s3_place: Place,
) -> None:
    stores = await asyncio.gather(*(asyncio.to_thread(s3_place.open) for _ in range(2)))
    journals = [Journal(store) for store in stores]
    for round_ in range(20):
        key = f"run/g000000/r{round_}/epoch/0"
        written = await asyncio.gather(
            *(journal.write(key, EpochEntry(reason=str(n))) for n, journal in enumerate(journals))
        )
        assert written[0] == written[1]


async def test_a_rollout_is_sealed_and_read_back(s3_place: Place) -> None:
    store = await asyncio.to_thread(s3_place.open)
    await Journal(store).write(KEY, MINE)
    await Journal(store).seal("run/g000000/r0")
    assert await store.keys("run/") == ["run/g000000/r0/sealed"]
    assert await Journal(store).read(KEY, EpochEntry) == MINE


async def test_a_foreign_object_at_a_key_is_a_corrupt_entry(s3_place: Place) -> None:
    store = await asyncio.to_thread(s3_place.open)
    await store.create(KEY, b"something else")
    with pytest.raises(JournalCorrupt, match=KEY):
        await Journal(store).read(KEY, EpochEntry)
