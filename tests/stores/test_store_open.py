"""Opening a store from its location: what is refused, and what the operator is told to do."""

import asyncio
import dataclasses
import uuid

import pytest

from clotho.config import Settings, load_settings
from clotho.errors import InvalidInput, StoreUnavailable
from clotho.journal.folder import FilesystemStore
from clotho.journal.open_store import open_existing, open_store
from clotho.plugins.s3.settings import S3Settings
from tests.s3_server import S3Server
from tests.stores import proxy
from tests.stores.conftest import Place
from tests.stores.proxy import DisturbedConnection


async def refusal(place: Place, **changed: object) -> str:
    with pytest.raises(InvalidInput) as refused:
        await asyncio.to_thread(dataclasses.replace(place, **changed).open)  # type: ignore[arg-type]
    return str(refused.value)


def test_a_path_is_a_folder(tmp_path: object) -> None:
    assert isinstance(open_store(f"{tmp_path}/store", Settings()), FilesystemStore)


@pytest.mark.parametrize(
    "location", ["gs://bucket/x", "s3://", "s3:///x", "s3://key:secret@bucket", "s3://b?x"]
)
def test_other_locations_are_refused(location: str) -> None:
    with pytest.raises(InvalidInput, match="give a folder or s3://"):
        open_store(location, Settings())


def test_a_folder_that_is_not_there_does_not_come_to_be_by_reading(tmp_path: object) -> None:
    with pytest.raises(InvalidInput, match="there is no store"):
        open_existing(f"{tmp_path}/mistyped", Settings())


async def test_a_whole_bucket_is_a_store_too(s3_place: Place, bucket: str) -> None:
    store = await asyncio.to_thread(dataclasses.replace(s3_place, location=f"s3://{bucket}").open)
    key = f"{uuid.uuid4().hex}/x"
    assert await store.create(key, b"x")
    assert await store.keys(key.removesuffix("x")) == [key]


async def test_a_missing_bucket(s3_place: Place) -> None:
    assert "create the bucket" in await refusal(s3_place, location="s3://not-there/x")
    assert "mend its name" in await refusal(s3_place, location="s3://Not_a_Name/x")


async def test_an_endpoint_that_is_no_url(s3_place: Place) -> None:
    assert "s3.endpoint" in await refusal(s3_place, s3=S3Settings(endpoint="localhost:9000"))
    said = await refusal(s3_place, s3=S3Settings(endpoint="http://user:hunter2@localhost:9000"))
    assert "leave credentials out" in said and "hunter2" not in said


async def test_an_endpoint_where_nobody_answers_is_an_outage(s3_place: Place) -> None:
    place = dataclasses.replace(s3_place, s3=S3Settings(endpoint="http://127.0.0.1:9", timeout=1))
    with pytest.raises(StoreUnavailable, match="Could not connect"):
        await asyncio.to_thread(place.open)


async def test_wrong_and_missing_credentials(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-hunter2")
    said = await refusal(s3_place)
    assert "check the AWS credentials" in said and "hunter2" not in said
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "set AWS_ACCESS_KEY_ID" in await refusal(s3_place)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert "nobody" in await refusal(s3_place)


async def test_credentials_without_permission(
    s3_place: Place, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await s3_server.create_user("stranger", "stranger-secret", role="user")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stranger")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stranger-secret")
    assert "allow s3:ListBucket" in await refusal(s3_place)


@pytest.mark.parametrize(
    ("method", "status", "code", "remedy"),
    [
        ("PUT", 403, "RequestTimeTooSkewed", "set this machine's clock"),
        ("PUT", 400, "ExpiredToken", "renew the AWS credentials"),
        ("PUT", 403, "InvalidAccessKeyId", "check the AWS credentials"),
        ("PUT", 400, "AuthorizationHeaderMalformed", "set s3.region"),
        ("PUT", 301, "PermanentRedirect", "set s3.region"),
        ("PUT", 501, "NotImplemented", "use a server with conditional writes"),
        ("GET", 403, "AccessDenied", "allow s3:ListBucket"),
        ("POST", 403, "AccessDenied", "s3:DeleteObject"),
        ("PUT", 400, "SomethingNew", "check the store's location"),
    ],
)
async def test_every_permission_is_tried_and_every_refusal_has_a_remedy(
    disturbed_place: Place, connection: DisturbedConnection, method: str, status: int, code: str, remedy: str
) -> None:
    connection.disturb(method, proxy.refused(status, code), times=4)
    said = await refusal(disturbed_place)
    assert code in said and remedy in said and "\n" not in said


async def test_a_server_that_overwrites_is_refused(
    disturbed_place: Place, connection: DisturbedConnection
) -> None:
    """Some servers take a conditional put for a plain one: two writers would both be first."""

    async def overwritten(request: bytes, forward: proxy.Forward) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    connection.disturb("PUT", overwritten, times=2)
    assert "use a server with conditional writes" in await refusal(disturbed_place)


def test_stores_that_are_not_folders_keep_their_servers_apart() -> None:
    """Two stores must not share a development server: it would take one's runs for the other's."""
    folders = {load_settings(location).folder for location in ("s3://a/b", "s3://a/c", "s3://a", "x/store")}
    assert len(folders) == 4
