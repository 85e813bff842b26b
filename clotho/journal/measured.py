"""A store whose answers are timed."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from clotho.journal.store import Store, Written

Answer = TypeVar("Answer")
Timed = Callable[[str, float], None]
"""Is told the request and the seconds that its answer took."""


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
