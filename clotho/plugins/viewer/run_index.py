"""The index of a run: a row for each scored group, kept up to date from what the store has more than last time.

Groups are looked up by their computed keys; nothing is listed but the run's items. A look reads the groups that
were open last time and those after the last scored one, as far as there are any.
"""

import asyncio
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import zstandard

from clotho.errors import JournalCorrupt
from clotho.identifiers.ids import group_id
from clotho.identifiers.keys import adapter_items_prefix, scored_key
from clotho.journal import Journal
from clotho.journal.store import Store
from clotho.plugins.viewer.listing import RunSums, sums_of
from clotho.plugins.viewer.rows import GroupRow, group_row, row_from
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import AdapterItem
from clotho.runs.groups import ENTRIES_PER_READ
from clotho.runs.items import count_items

PERIOD_SECONDS = 1.0
"""Between two looks into the store."""
RATE_SECONDS = 300.0
KEPT_AFTER = 500
"""New groups after which the file is written again."""
AHEAD = 32
"""Groups after the last scored one that may have begun."""
# to be raised when rows change: files of another schema are ignored, and written again
SCHEMA = 3


class RunIndex:
    """Rows of one run; a position is a group's number in the order in which groups are begun."""

    def __init__(self, store: Store, run: str, folder: Path) -> None:
        self.run = run
        self.rows: dict[int, GroupRow] = {}
        self.problems: dict[int, str] = {}
        """Groups whose entries can't be read, and why."""
        self.total = 0
        """Groups that the run has items for."""
        self.known = False
        """Whether the store was looked through once."""
        self.version = 0
        self._store = store
        self._file = IndexFile(folder, store.identity, run)
        self._names: list[str] | None = None
        self._open: list[int] = []
        self._next = 0
        self._unwritten = 0
        self._looked = float("-inf")
        self._loaded = False
        self._looking: asyncio.Task[None] | None = None
        self._sums: tuple[int, RunSums] | None = None
        self._seen: deque[tuple[float, int]] = deque()

    async def look(self, patience_seconds: float | None) -> None:
        """Bring the rows up to date; a look that takes longer than `patience_seconds`, if any, goes on by itself.

        Raises what the store does.
        """
        if self._looking is None or self._looking.done():
            if time.monotonic() - self._looked < PERIOD_SECONDS:
                return
            self._looking = asyncio.create_task(self._look())
        await asyncio.wait([self._looking], timeout=patience_seconds)
        if self._looking.done():
            self._looking.result()

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    @property
    def in_order(self) -> list[GroupRow]:
        return [self.rows[position] for position in sorted(self.rows)]

    def beside(self, group: str) -> tuple[GroupRow | None, GroupRow | None]:
        """The scored groups before and after one."""
        rows = self.in_order
        at = next((at for at, row in enumerate(rows) if row.group == group), None)
        if at is None:
            return None, None
        return rows[at - 1] if at else None, rows[at + 1] if at + 1 < len(rows) else None

    async def sums(self) -> RunSums:
        """Sums over the rows, made once for each version of them."""
        # taken before the wait: rows that come meanwhile make the sums old
        version = self.version
        if self._sums is None or self._sums[0] != version:
            self._sums = version, await asyncio.to_thread(sums_of, self.in_order)
        return self._sums[1]

    @property
    def begun_candidates(self) -> list[str]:
        """Groups that may have begun and aren't scored."""
        ahead = range(self._next, min(self.total, self._next + AHEAD))
        return [self._name(position) for position in (*self._open, *ahead) if position not in self.problems]

    @property
    def groups_per_minute(self) -> float | None:
        """The rate that was seen in the last minutes; None where nothing was scored in them."""
        if len(self._seen) < 2 or self._seen[-1][1] == self._seen[0][1]:
            return None
        (first, before), (last, now) = self._seen[0], self._seen[-1]
        return 60 * (now - before) / (last - first)

    async def _look(self) -> None:
        journal = Journal(self._store)  # its cache ends with the look
        if not self._loaded:
            await self._load(journal)
            self._loaded = True
        await self._count(journal)
        self._open = await self._read(journal, self._open)
        while self._next < self.total:
            part = list(range(self._next, min(self._next + ENTRIES_PER_READ, self.total)))
            missing = await self._read(journal, part)
            if len(missing) == len(part):
                break
            self._next = max(set(part) - set(missing)) + 1
            self._open += [position for position in missing if position < self._next]
        self.known = True
        self._looked = time.monotonic()
        self._seen.append((self._looked, len(self.rows)))
        while self._seen[0][0] < self._looked - RATE_SECONDS:
            self._seen.popleft()
        if self._unwritten >= KEPT_AFTER or (self._unwritten and len(self.rows) == self.total):
            # a full disk costs the next viewer a look through the store, nothing more
            with suppress(OSError):
                await asyncio.to_thread(self._file.write, dict(self.rows))
            self._unwritten = 0

    async def _load(self, journal: Journal) -> None:
        rows = await asyncio.to_thread(self._file.read)
        if not await _are_current(journal, rows):
            return
        self.rows = rows
        self._next = max(rows, default=-1) + 1
        self._open = [position for position in range(self._next) if position not in rows]
        self.version += 1

    async def _count(self, journal: Journal) -> None:
        if enumerated := await count_items(journal, self.run):
            self.total = enumerated
            return
        keys = await journal.keys(adapter_items_prefix(self.run))
        self._names = self._names or []
        items = await journal.read_many(keys[len(self._names) :], AdapterItem)
        self._names += [item.group for item in items if item is not None]
        self.total = len(self._names)

    async def _read(self, journal: Journal, positions: Sequence[int]) -> list[int]:
        """Read the groups at `positions`; returns those that aren't scored."""
        entries = await self._entries(journal, positions)
        for position, entry in entries.items():
            self.rows[position] = group_row(self._name(position), entry)
        self._unwritten += len(entries)
        self.version += bool(entries)
        return [each for each in positions if each not in entries and each not in self.problems]

    async def _entries(self, journal: Journal, positions: Sequence[int]) -> dict[int, GroupEntry]:
        keys = [scored_key(self._name(position)) for position in positions]
        try:
            return _present(positions, await journal.read_many(keys, GroupEntry))
        except JournalCorrupt:
            pass
        # read_many fails as a whole: alone, each group says whether it is the damaged one
        found: dict[int, GroupEntry] = {}
        for position, key in zip(positions, keys, strict=True):
            try:
                found |= _present([position], await journal.read_many([key], GroupEntry))
            except JournalCorrupt as error:
                self.problems[position] = str(error)
        return found

    def _name(self, position: int) -> str:
        return self._names[position] if self._names else group_id(self.run, position)


class RunIndexes:
    """The indexes of a store's runs."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._indexes: dict[str, RunIndex] = {}

    def of(self, run: str) -> RunIndex:
        if run not in self._indexes:
            self._indexes[run] = RunIndex(self._store, run, self._folder)
        return self._indexes[run]

    async def stop(self) -> None:
        await asyncio.gather(*(index.stop() for index in self._indexes.values()))


def _present(positions: Iterable[int], entries: Iterable[GroupEntry | None]) -> dict[int, GroupEntry]:
    pairs = zip(positions, entries, strict=True)
    return {position: entry for position, entry in pairs if entry is not None}


async def _are_current(journal: Journal, rows: Mapping[int, GroupRow]) -> bool:
    """Whether rows from the disk are this run's: a store may have been made anew at the same place."""
    positions = sorted(rows)
    samples = {positions[0], positions[len(positions) // 2], positions[-1]} if positions else set()
    keys = {position: scored_key(rows[position].group) for position in samples}
    entries = await journal.read_many(list(keys.values()), GroupEntry)
    found = zip(keys, entries, strict=True)
    return all(each is not None and group_row(rows[at].group, each) == rows[at] for at, each in found)


class IndexFile:
    """The rows of one run of one store on this machine's disk, so that they are read from the store once.

    All methods block.
    """

    def __init__(self, folder: Path, store: str, run: str) -> None:
        self._path = folder / hashlib.sha256(store.encode()).hexdigest()[:16] / f"{run}.json.zst"

    def read(self) -> dict[int, GroupRow]:
        """The rows; none where there is no file, or one that can't be used."""
        try:
            schema, rows = json.loads(zstandard.decompress(self._path.read_bytes()))
            return {position: row_from(row) for position, *row in rows} if schema == SCHEMA else {}
        except (OSError, ValueError, TypeError, zstandard.ZstdError):
            return {}

    def write(self, rows: Mapping[int, GroupRow]) -> None:
        """Replace the file. Raises OSError."""
        body = json.dumps([SCHEMA, [[position, *row] for position, row in rows.items()]]).encode()
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # a name of this process's own: another viewer may write the same index now
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            # the mode comes before the content, which has texts of items
            temporary.touch(mode=0o600)
            temporary.write_bytes(zstandard.compress(body, 1))
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
