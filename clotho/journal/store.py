"""The protocol of a blob store."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


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
