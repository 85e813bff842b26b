"""The protocol of a blob store."""

from collections.abc import Sequence
from typing import Protocol


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

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove what is there; a missing key is no error."""
