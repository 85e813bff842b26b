"""The SQLite file that holds the API's state."""

import sqlite3
from pathlib import Path

from clotho.errors import InvalidInput

APPLICATION, FORMAT = 0x434C4F51, 2
"""SQLite's application_id, which marks the file as ours, and its user_version."""
# A group is in the queue, in a buffer of parts that wait for others to fill a group, in a batch that waits, or in
# one that was served; the newest of all may be in none of them, and is shown still. `part` is the buffer's
# environment or the batch's number. Contents have a table of their own: moving a group doesn't write them again.
SCHEMA = """
CREATE TABLE state (content TEXT NOT NULL);
CREATE TABLE environments (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, context INTEGER NOT NULL, weight REAL NOT NULL,
    size INTEGER NOT NULL, share REAL, connected INTEGER NOT NULL
);
CREATE TABLE groups (
    number INTEGER PRIMARY KEY, place TEXT NOT NULL, part INTEGER NOT NULL, position INTEGER NOT NULL,
    environment INTEGER, rows INTEGER NOT NULL, id TEXT
);
CREATE INDEX places ON groups (place, part, position);
CREATE TABLE contents (number INTEGER PRIMARY KEY REFERENCES groups ON DELETE CASCADE, content BLOB NOT NULL);
CREATE TABLE accepted (id TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT INTO state VALUES ('{}');
"""


def open_queue_file(path: Path) -> sqlite3.Connection:
    """Open or make the file, for this process alone.

    Raises InvalidInput if it is in use, foreign, of another format, damaged, or can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # timeout 0: a second process is refused at once; the server calls from a thread of its own
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
    except (OSError, sqlite3.Error) as error:
        reason = "another process has it open" if "locked" in str(error) else str(error)
        raise InvalidInput(f"the queue {path} can't be used: {reason}") from error
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    # in this order: the exclusive lock, which the first read takes, is what keeps a second process out
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    # NORMAL, with a WAL, doesn't sync at each commit: a power loss would take acknowledged groups
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};"
        # one transaction: a kill leaves an empty file, never tables without the marks that are checked below
        connection.executescript(f"BEGIN; {SCHEMA} {marks} COMMIT;")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION:
        raise sqlite3.DatabaseError("it is the database of another program")
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found != FORMAT:
        raise sqlite3.DatabaseError(
            f"another version of Clotho wrote it (format {found}, not {FORMAT}): name another with --queue"
        )
    # takes the write lock now: in this mode it is kept
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("COMMIT")
