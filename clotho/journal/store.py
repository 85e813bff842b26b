"""The protocol of a blob store, the keys that every store refuses, and a store whose answers are timed."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from clotho.errors import InvalidInput

MOST_BYTES, MOST_SEGMENT_BYTES = 1_024, 255
"""Limits of a key in S3, and of a file's name."""
Answer = TypeVar("Answer")
Timed = Callable[[str, float], None]
"""Is told the request and the seconds that its answer took."""


class Written(NamedTuple):
    """Times by the clock of a store's server, in Unix seconds: no host's clock is right for another."""

    now: float
    at: Mapping[str, float]
    """Key -> the time when it was created."""


class Store(Protocol):
    """Write-once blobs at slash-separated keys.

    Every method may raise StoreUnavailable, and InvalidInput for what `checked_key` refuses.
    """

    @property
    def identity(self) -> str:
        """The store's name, the same in every process that opens it."""

    async def create(self, key: str, body: bytes) -> bool:
        """Write `body` unless the key is taken, durably before returning; False if it was taken."""

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The blobs at `keys`, in their order, read in parallel; None where there is none."""

    async def keys(self, prefix: str) -> list[str]:
        """The keys that start with `prefix`, which ends in a slash, sorted."""

    async def written(self, prefix: str) -> Written:
        """When the keys that `keys` lists were created, and what the time is there now, to a second or better."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove what is there; a missing key is no error."""


def checked_key(key: str) -> str:
    """Return `key` if it is names joined by slashes; raises InvalidInput for anything else."""
    try:
        names = key.encode().split(b"/")
    except UnicodeEncodeError:
        raise _refused(key, "it can't be encoded") from None
    if any(name in (b"", b".", b"..") for name in names):
        raise _refused(key, "every part between slashes must be a name")
    if b"\0" in key.encode():
        raise _refused(key, "it holds a NUL")
    if len(key.encode()) > MOST_BYTES or max(map(len, names)) > MOST_SEGMENT_BYTES:
        raise _refused(key, f"it, or a name in it, is longer than {MOST_BYTES} or {MOST_SEGMENT_BYTES} bytes")
    return key


def checked_prefix(prefix: str) -> str:
    """Return `prefix` if it is a key and a slash; raises InvalidInput for anything else."""
    if not prefix.endswith("/"):
        raise _refused(prefix, "a prefix ends in a slash")
    checked_key(prefix[:-1])
    return prefix


def _refused(key: str, why: str) -> InvalidInput:
    return InvalidInput(f"{key[:200]!r} is no key of a store: {why}")


class MeasuredStore:
    """Passes every request on to `store`, and the time of its answer to `timed`; refused ones aren't timed."""

    def __init__(self, store: Store, timed: Timed) -> None:
        self._store = store
        self._timed = timed

    @property
    def identity(self) -> str:
        return self._store.identity

    async def create(self, key: str, body: bytes) -> bool:
        return await self._answered("create", self._store.create(key, body))

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return await self._answered("read", self._store.read_many(keys))

    async def keys(self, prefix: str) -> list[str]:
        return await self._answered("list", self._store.keys(prefix))

    async def written(self, prefix: str) -> Written:
        return await self._answered("list", self._store.written(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._answered("delete", self._store.delete(keys))

    async def _answered(self, request: str, answer: Awaitable[Answer]) -> Answer:
        started = time.monotonic()
        answered = await answer
        self._timed(request, time.monotonic() - started)
        return answered
