"""The operations of a store on one bucket, as blocking calls that raise the client library's errors.

A conditional put (`If-None-Match: *`) makes S3 write-once: see `Bucket.create`. A server that ignores the
condition is refused when the store is opened (`clotho/plugins/s3/store.py`).
"""

import random
import time
import uuid
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from clotho.journal.store import Written
from clotho.plugins.s3.refusals import BROKEN_BODIES, code_of, has_readable_code

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import ListObjectsV2OutputTypeDef

CONFLICT_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Waits after each refusal because another write of the key is under way."""
BODY_ATTEMPTS = 4
"""Attempts at reading a body that broke off or doesn't fit its checksum: the client repeats only requests."""
DELETED_AT_ONCE = 1_000


@dataclass(frozen=True)
class Bucket:
    """Objects under `root`, which is empty or ends in a slash."""

    client: "S3Client"
    name: str
    root: str

    def create(self, key: str, body: bytes) -> bool:
        """Put the object unless the key is taken; returns whether this call has put it, by whichever of its tries.

        Each call marks its object: a try that finds the key taken by the call's own mark has succeeded before.
        Servers other than AWS's may refuse a key as taken for a moment before its object can be read.
        """
        mark, last = uuid.uuid4().hex, len(CONFLICT_PAUSES_SECONDS)
        for number in range(last + 1):
            try:
                self._put(key, body, mark)
                return True
            except ClientError as error:
                # only a repeated put can have been preceded by its own, whose answer was lost
                repeated = number > 0 or error.response["ResponseMetadata"]["RetryAttempts"] > 0
                if code_of(error) == "PreconditionFailed":
                    there = self._mark_of(key)
                    if there is not None or number == last:
                        return repeated and there == mark
                elif code_of(error) != "ConditionalRequestConflict" or number == last:
                    raise
            # at random: writers of one key would meet again
            time.sleep(CONFLICT_PAUSES_SECONDS[number] * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")

    def read(self, key: str) -> bytes | None:
        for attempts_left in reversed(range(BODY_ATTEMPTS)):
            try:
                found = self.client.get_object(Bucket=self.name, Key=self.root + key)
                return found["Body"].read()
            except self.client.exceptions.NoSuchKey:
                return None
            except BROKEN_BODIES:
                if not attempts_left:
                    raise
            except ClientError as error:
                if has_readable_code(error) or not attempts_left:
                    raise
        raise AssertionError("unreachable")

    def keys(self, prefix: str) -> list[str]:
        """The keys under `prefix`, sorted."""
        return sorted(key for page in self._pages(prefix) for key in self._times(page))

    def written(self, prefix: str) -> Written:
        now = time.time()
        at: dict[str, float] = {}
        for page in self._pages(prefix):
            at.update(self._times(page))
            if (date := page["ResponseMetadata"]["HTTPHeaders"].get("date")) is not None:
                # the server's clock, by which the times of its keys are: this host's may be off
                now = parsedate_to_datetime(date).timestamp()
        return Written(now, at)

    def _pages(self, prefix: str) -> Iterable["ListObjectsV2OutputTypeDef"]:
        pages = self.client.get_paginator("list_objects_v2")
        return pages.paginate(Bucket=self.name, Prefix=self.root + prefix)

    def _times(self, page: "ListObjectsV2OutputTypeDef") -> Mapping[str, float]:
        """The keys of a page, without the empty objects that consoles show as folders, and when they were put."""
        return {
            found["Key"].removeprefix(self.root): found["LastModified"].timestamp()
            for found in page.get("Contents", [])
            if not found["Key"].endswith("/")
        }

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETED_AT_ONCE):
            names = [self.root + key for key in keys[start : start + DELETED_AT_ONCE]]
            answer = self.client.delete_objects(
                Bucket=self.name, Delete={"Objects": [{"Key": name} for name in names], "Quiet": True}
            )
            for failed in answer.get("Errors", []):
                said = {"Error": failed, "ResponseMetadata": answer["ResponseMetadata"]}
                raise ClientError(said, "DeleteObjects")  # type: ignore[arg-type]  # two stubs of one shape

    def ignores_conditions(self, key: str) -> bool:
        """Whether the server lets a second conditional write of `key` through."""
        return self.create(key, b"") and self.create(key, b"")

    def _put(self, key: str, body: bytes, mark: str) -> None:
        self.client.put_object(
            Bucket=self.name,
            Key=self.root + key,
            Body=body,
            IfNoneMatch="*",
            # the server refuses a body that was damaged on its way, and returns this with every read
            ChecksumSHA256=b64encode(sha256(body).digest()).decode(),
            Metadata={"mark": mark},
        )

    def _mark_of(self, key: str) -> str | None:
        """The mark of the object: empty if another client wrote it, None where there is no object."""
        try:
            return self.client.get_object(Bucket=self.name, Key=self.root + key)["Metadata"].get("mark", "")
        except self.client.exceptions.NoSuchKey:
            return None
