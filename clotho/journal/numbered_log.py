"""Numbered logs: mutable state in a write-once store. The last entry of a log counts.

A number is never used again. A log may delete all but its last entries, and never the last: so a number is new if
there is none after it. A writer that fell behind may create a number that isn't new; it finds that out by listing
the log again, and writes another.
"""

from collections.abc import Callable, Sequence

from clotho.journal.store import Store

Body = Callable[[str], bytes]
"""Key -> the bytes to write there."""


class NumberedLog:
    """The log under `prefix`; with `kept`, appending deletes all but so many of the last."""

    def __init__(self, store: Store, prefix: str, kept: int | None = None) -> None:
        if kept is not None and kept < 1:
            raise ValueError("the last entry of a log stays")
        self._store = store
        self._prefix = prefix
        self._kept = kept

    def key(self, number: int) -> str:
        return f"{self._prefix}{number:06}"

    async def numbers(self) -> list[int]:
        """The numbers in the log, in order."""
        return sorted(int(key.rpartition("/")[2]) for key in await self._store.keys(self._prefix))

    async def last(self) -> int | None:
        numbers = await self.numbers()
        return numbers[-1] if numbers else None

    async def last_from(self, known: int) -> int:
        """The last number of a log that keeps all its entries; reads on from number `known` instead of listing."""
        # each look reads twice as many: a log that has grown by n needs about log n of them
        ahead = 1
        while True:
            keys = [self.key(known + each) for each in range(1, ahead + 1)]
            new = (*await self._store.read_many(keys), None).index(None)
            known += new
            if new < ahead:
                return known
            ahead *= 2

    async def append(self, body: Body) -> int:
        """Write the next entry, however many others do; returns its number."""
        late: list[int] = []
        while True:
            last = await self.last()
            number = 0 if last is None else last + 1
            while not await self._create(number, body):
                number += 1
            if await self._is_new(number):
                await self._delete(late)
                return number
            late.append(number)

    async def append_after(self, last: int | None, body: Body) -> int | None:
        """Write the entry after number `last`; None if another writer did. The same entry again succeeds."""
        number = 0 if last is None else last + 1
        key = self.key(number)
        # an equal entry is this writer's own, of an attempt whose answer was lost
        if not await self._create(number, body) and await self._store.read_many([key]) != [body(key)]:
            return None
        if await self._is_new(number):
            return number
        await self._delete([number])
        return None

    async def _create(self, number: int, body: Body) -> bool:
        key = self.key(number)
        return await self._store.create(key, body(key))

    async def _is_new(self, number: int) -> bool:
        """Whether the number just created was never used before; if so, delete the entries that it replaced."""
        if self._kept is None:
            return True
        numbers = await self.numbers()
        if numbers[-1:] != [number]:
            return False
        await self._delete(numbers[: -self._kept])
        return True

    async def _delete(self, numbers: Sequence[int]) -> None:
        await self._store.delete([self.key(number) for number in numbers])
