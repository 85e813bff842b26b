"""A store in one SQLite file, for the processes of one host."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from clotho.errors import StoreUnavailable
from clotho.journal.store import Written, checked_key, checked_prefix

Result = TypeVar("Result")


class SqliteStore:
    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        with closing(self._connection()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS blobs (key TEXT PRIMARY KEY, body BLOB NOT NULL, at REAL)"
            )

    @property
    def identity(self) -> str:
        return f"sqlite:{self._file}"

    async def create(self, key: str, body: bytes) -> bool:
        insert = "INSERT INTO blobs VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        row = (checked_key(key), body, time.time())
        return await self._use(lambda connection: connection.execute(insert, row).rowcount == 1)

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        wanted = [checked_key(key) for key in keys]
        return await self._use(lambda connection: [_read(connection, key) for key in wanted])

    async def keys(self, prefix: str) -> list[str]:
        return list((await self.written(prefix)).at)

    async def written(self, prefix: str) -> Written:
        """By this host's clock: all who use the file are on it."""
        after = checked_prefix(prefix)
        before = after[:-1] + "0"  # the character after the slash
        query = "SELECT key, at FROM blobs WHERE key > ? AND key < ? ORDER BY key"
        at = await self._use(lambda connection: dict(connection.execute(query, (after, before)).fetchall()))
        return Written(time.time(), at)

    async def delete(self, keys: Sequence[str]) -> None:
        rows = [(checked_key(key),) for key in keys]
        await self._use(lambda connection: connection.executemany("DELETE FROM blobs WHERE key = ?", rows))

    async def _use(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """The result of `work`, on the disk; every call has a connection and a thread of its own."""

        def use() -> Result:
            try:
                with closing(self._connection()) as connection, connection:
                    return work(connection)
            except sqlite3.OperationalError as error:
                raise StoreUnavailable(f"store {self._file}: {error}") from error

        return await asyncio.to_thread(use)

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._file, timeout=60)
        connection.execute("PRAGMA synchronous = FULL")
        return connection


def _read(connection: sqlite3.Connection, key: str) -> bytes | None:
    row = connection.execute("SELECT body FROM blobs WHERE key = ?", (key,)).fetchone()
    return None if row is None else bytes(row[0])
