"""A store in an S3 bucket: a blob is an object, made write-once by a conditional put (`bucket.py`)."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.handlers import add_expect_header

from clotho.config import Settings
from clotho.errors import InvalidInput, StoreUnavailable
from clotho.escaping import truncate_middle
from clotho.journal.store import Written, checked_key, checked_prefix
from clotho.plugins.s3.bucket import Bucket
from clotho.plugins.s3.refusals import FAILURES, UNSUITABLE_SERVER, Failure, concerns_credentials, remedy
from clotho.plugins.s3.settings import S3Settings

CONNECTIONS = 32
READERS = 16
"""Connections that one call may read with: a long read must not keep writers waiting."""
ATTEMPTS = 4
"""Attempts at a request before the failure is left to Temporal."""
RENEWAL_SECONDS = 10.0
"""Between two readings of the credentials: each costs a new client, some 150 ms."""
TRIAL_KEY = ".clotho"
ERROR_CHARACTERS = 400

Result = TypeVar("Result")


def open_s3(location: str, settings: Settings) -> "S3Store":
    """The store at s3://bucket/prefix. Raises InvalidInput for a location of another form, and as S3Store does."""
    place = urlsplit(location)
    if not place.netloc or "@" in place.netloc or place.query or place.fragment:
        raise InvalidInput(f"store {location!r}: give a folder or s3://bucket/prefix")
    return S3Store(place.netloc, place.path.strip("/"), settings.of(S3Settings))


class S3Store:
    """Blobs in `bucket` under `prefix`, shared by every process with access to it. All I/O is done in threads.

    Opening tries everything that the store will do, and raises InvalidInput with a remedy where it is refused.
    Later failures are all StoreUnavailable: what was allowed and no longer is (expired credentials, a changed
    policy, a wrong clock) gets mended by an operator, and rollouts wait for it. Credentials are read anew then.
    """

    def __init__(self, bucket: str, prefix: str, settings: S3Settings) -> None:
        self._name = bucket
        self._root = f"{prefix}/" if prefix else ""
        self._settings = settings
        self._location = f"s3://{bucket}/{prefix}".removesuffix("/")
        self._connecting = Lock()
        self._bucket: Bucket | None = None
        self._renewed = float("-inf")
        try:
            server = urlsplit(self._connected().client.meta.endpoint_url)
            if "@" in server.netloc:
                raise ValueError("leave credentials out of the URL")
            self._try_out(self._connected())
        except FAILURES as error:
            refused = remedy(error) is not None
            raise (InvalidInput if refused else StoreUnavailable)(self._explained(error)) from error
        except ValueError as error:
            raise InvalidInput(f"store {self._location}: s3.endpoint: {error}") from error
        on_aws = (server.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
        # by the server, too, where it isn't AWS's: buckets of two servers may have one name
        self._identity = self._location if on_aws else f"{self._location} at {server.netloc}"
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="store")

    @property
    def identity(self) -> str:
        return self._identity

    async def create(self, key: str, body: bytes) -> bool:
        checked_key(key)
        return await self._in_thread(lambda bucket: bucket.create(key, body))

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        for key in keys:
            checked_key(key)

        async def share(first: int) -> list[bytes | None]:
            return await self._in_thread(lambda bucket: [bucket.read(key) for key in keys[first::READERS]])

        shares = await asyncio.gather(*(share(first) for first in range(min(READERS, len(keys)))))
        return [shares[number % READERS][number // READERS] for number in range(len(keys))]

    async def keys(self, prefix: str) -> list[str]:
        checked_prefix(prefix)
        return await self._in_thread(lambda bucket: bucket.keys(prefix))

    async def written(self, prefix: str) -> Written:
        checked_prefix(prefix)
        return await self._in_thread(lambda bucket: bucket.written(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            checked_key(key)
        await self._in_thread(lambda bucket: bucket.delete(keys))

    async def _in_thread(self, work: Callable[[Bucket], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._attempt, work)

    def _attempt(self, work: Callable[[Bucket], Result]) -> Result:
        try:
            return work(self._connected())
        except FAILURES as error:
            if concerns_credentials(error) and time.monotonic() - self._renewed > RENEWAL_SECONDS:
                self._bucket, self._renewed = None, time.monotonic()
            raise StoreUnavailable(self._explained(error)) from error

    def _connected(self) -> Bucket:
        with self._connecting:
            if self._bucket is None:
                self._bucket = self._connect()
            return self._bucket

    def _connect(self) -> Bucket:
        # a new session reads the credentials anew: the library's default one keeps them
        session = boto3.Session()
        client = session.client(
            "s3",
            endpoint_url=self._settings.endpoint,
            region_name=self._settings.region or session.region_name or "us-east-1",
            config=Config(
                connect_timeout=self._settings.timeout,
                read_timeout=self._settings.timeout,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                max_pool_connections=CONNECTIONS,
                tcp_keepalive=True,
            ),
        )
        # an entry is small: asking before it is sent costs a round trip, and a second where no answer comes
        client.meta.events.unregister("before-call.s3", add_expect_header)
        return Bucket(client, self._name, self._root)

    def _try_out(self, bucket: Bucket) -> None:
        if bucket.ignores_conditions(TRIAL_KEY):
            raise InvalidInput(
                f"store {self._location}: the server overwrites what exists — {UNSUITABLE_SERVER}"
            )
        bucket.read(TRIAL_KEY)
        bucket.keys(f"{TRIAL_KEY}/")
        # of a key that isn't there: it shows whether deleting is allowed, and deletes nothing
        bucket.delete([f"{TRIAL_KEY}-none"])

    def _explained(self, error: Failure) -> str:
        said = f"store {self._location}: {truncate_middle(str(error), ERROR_CHARACTERS)}"
        return f"{said} — {mending}" if (mending := remedy(error)) else said
