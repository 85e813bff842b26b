"""Stores to test: one in a folder, one in S3, and one in S3 behind a connection that can be disturbed."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import pytest

from clotho.config import settings_class
from clotho.journal.open_store import open_store
from clotho.journal.store import Store
from clotho.plugins.s3.settings import S3Settings
from tests.containers import s3_server
from tests.s3_server import S3Server
from tests.stores.proxy import DisturbedConnection
from tests.support import PATIENCE_SECONDS

__all__ = ["s3_server"]

BUCKET = "journals"


@dataclass(frozen=True)
class Place:
    """Where a store is, for any process to open."""

    location: str
    s3: S3Settings = field(default_factory=S3Settings)

    def open(self) -> Store:
        return open_store(self.location, settings_class()(plugins={"s3": self.s3}))


@pytest.fixture(scope="session")
async def bucket(s3_server: S3Server) -> str:
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=s3_server.access_key,
        aws_secret_access_key=s3_server.secret_key,
    )
    await asyncio.to_thread(client.create_bucket, Bucket=BUCKET)
    return BUCKET


@pytest.fixture
def credentials(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The administrator's, where the AWS libraries look for them first."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for variable in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def s3_place(s3_server: S3Server, bucket: str, credentials: None) -> Place:
    return Place(f"s3://{bucket}/{uuid.uuid4().hex}", S3Settings(endpoint=s3_server.endpoint))


@pytest.fixture
async def connection(s3_server: S3Server) -> AsyncIterator[DisturbedConnection]:
    async with DisturbedConnection(s3_server.endpoint) as connection:
        yield connection


@pytest.fixture
def disturbed_place(s3_place: Place, connection: DisturbedConnection) -> Place:
    return Place(s3_place.location, S3Settings(endpoint=connection.url, timeout=PATIENCE_SECONDS))


@pytest.fixture
async def disturbed(disturbed_place: Place) -> Store:
    """A store whose requests pass the `connection`."""
    return await asyncio.to_thread(disturbed_place.open)
