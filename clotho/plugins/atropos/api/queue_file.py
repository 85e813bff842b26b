"""The SQLite file: what the application held at the last answer, and the ids it ever accepted."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard
from pydantic_core import from_json, to_json

from clotho.errors import InvalidInput
from clotho.plugins.atropos.api.upstream import Group, Place, Registration

APPLICATION = 0x434C4F51
"""Marks the file as ours."""
COMPRESSION = 1
"""Level of zstandard: writing fewer bytes saves more time than it takes."""
SCHEMA = """
CREATE TABLE held (row INTEGER PRIMARY KEY, position INTEGER NOT NULL, place TEXT NOT NULL, number INTEGER NOT NULL,
                   content BLOB NOT NULL);
CREATE TABLE accepted (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE registration (one INTEGER PRIMARY KEY CHECK (one = 1), content TEXT NOT NULL, latest INTEGER);
"""


@dataclass(frozen=True)
class Row:
    """A group with the number it keeps, and where it stands: rows of a place are in the order of `position`."""

    row: int
    position: int
    place: Place
    group: Group


@dataclass(frozen=True)
class Changes:
    """The changes of one request, written whole or not at all."""

    added: Sequence[Row]
    moved: Sequence[Row]
    removed: Sequence[int]
    accepted: Sequence[str]
    forget_accepted: bool
    registration: Registration
    latest: int | None


@dataclass(frozen=True)
class Contents:
    rows: Sequence[Row]
    registration: Registration
    latest: int | None


class QueueFile:
    """Blocking: to be used from one thread at a time. Only one process can have a file open."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises InvalidInput if it is in use, foreign, damaged, or can't be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = _opened(path)
        except (OSError, sqlite3.Error) as error:
            reason = "another process has it open" if "locked" in str(error) else str(error)
            raise InvalidInput(f"the queue {path} can't be used: {reason}") from error

    def close(self) -> None:
        self._connection.close()

    def read(self) -> Contents:
        rows = self._connection.execute(
            "SELECT row, position, place, number, content FROM held ORDER BY position"
        )
        known = self._connection.execute("SELECT content, latest FROM registration").fetchone()
        return Contents(
            [
                Row(row, at, Place(kind, number), from_json(zstandard.decompress(content)))
                for row, at, kind, number, content in rows
            ],
            Registration.model_validate_json(known[0]) if known else Registration(),
            known[1] if known else None,
        )

    def known(self, ids: Iterable[str]) -> set[str]:
        """The subset of `ids` that was accepted."""
        query = "SELECT id FROM accepted WHERE id = ?"
        return {found[0] for each in ids for found in self._connection.execute(query, (each,))}

    def write(self, changes: Changes) -> None:
        """Write the changes. Raises sqlite3.Error, and leaves the file as it was, if it can't be written."""
        with self._connection as writing:
            if changes.forget_accepted:
                writing.execute("DELETE FROM accepted")
            writing.executemany("INSERT INTO accepted VALUES (?)", [(each,) for each in changes.accepted])
            writing.executemany("DELETE FROM held WHERE row = ?", [(row,) for row in changes.removed])
            writing.executemany(
                "UPDATE held SET position = ?, place = ?, number = ? WHERE row = ?",
                [(each.position, each.place.kind, each.place.number, each.row) for each in changes.moved],
            )
            writing.executemany(
                "INSERT INTO held VALUES (?, ?, ?, ?, ?)",
                [
                    (
                        each.row,
                        each.position,
                        each.place.kind,
                        each.place.number,
                        zstandard.compress(to_json(each.group), COMPRESSION),
                    )
                    for each in changes.added
                ],
            )
            writing.execute(
                "INSERT OR REPLACE INTO registration VALUES (1, ?, ?)",
                (changes.registration.model_dump_json(), changes.latest),
            )


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, check_same_thread=False)
    # In this order: the exclusive lock, which the first read takes, is what keeps a second process out.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        connection.executescript(f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION}; COMMIT;")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION:
        connection.close()
        raise sqlite3.DatabaseError("it is the database of another program")
    # Takes the write lock now: in this mode it is kept.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("COMMIT")
    return connection
