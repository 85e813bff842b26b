"""An offline corpus: documents in an index of SQLite's FTS5, searched by bm25."""

import asyncio
import hashlib
import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from clotho.config import cache_folder
from clotho.errors import HostUnavailable, InvalidInput
from clotho.host_failures import described
from clotho.plugins.web.provider import Found

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SUFFIXES = (".html", ".md", ".rst", ".txt")
WORD = re.compile(r"\w+")
MOST_WORDS = 64
TITLE_WEIGHT = 4.0
SCHEMA = "CREATE VIRTUAL TABLE documents USING fts5(title, body, url UNINDEXED, tokenize='porter unicode61')"
# rowid last: documents of equal rank come in the same order each time
SEARCH = (
    "SELECT title, url, snippet(documents, 1, '', '', ' … ', 48) FROM documents WHERE documents MATCH ?"
    f" ORDER BY bm25(documents, {TITLE_WEIGHT}, 1.0), rowid LIMIT ?"
)

FRESH_SECONDS = 5.0
"""Time for which a corpus isn't looked at again."""

_indexing = threading.Lock()
_threads = ThreadPoolExecutor(8, thread_name_prefix="corpora")
_fresh: dict[tuple[Path, Path], tuple[float, Path]] = {}
"""Folder of indexes and corpus -> when it was looked at, and its index."""


async def in_thread(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Run `function` in a thread of the corpora's own pool: many may wait there for an index."""
    return await asyncio.get_running_loop().run_in_executor(_threads, function, *arguments)


def search(corpus: str, query: str, limit: int) -> list[Found]:
    """The documents that match any word of `query`, the best first.

    Raises InvalidInput for what is no corpus, HostUnavailable where this host can't read it or its index.
    """
    words = WORD.findall(query)[:MOST_WORDS]
    if not words:
        return []
    # quoted: FTS5 takes words such as AND and NEAR for operators
    asked = " OR ".join(f'"{word}"' for word in words)
    with _opened(Path(corpus)) as index:
        rows = index.execute(SEARCH, (asked, limit)).fetchall()
    return [Found(title=title, url=url, description=" ".join(text.split())) for title, url, text in rows]


def document(corpus: str, url: str) -> tuple[str, str] | None:
    """Title and text of the document at `url`, if the corpus has it. Raises as `search` does."""
    with _opened(Path(corpus)) as index:
        row = index.execute("SELECT title, body FROM documents WHERE url = ?", (url,)).fetchone()
    return None if row is None else (str(row[0]), str(row[1]))


@contextmanager
def _opened(corpus: Path) -> Iterator[sqlite3.Connection]:
    try:
        # read-only: SQLite would make an empty file where there is none
        with closing(sqlite3.connect(f"{_index(corpus).absolute().as_uri()}?mode=ro", uri=True)) as index:
            yield index
    except (sqlite3.Error, OSError) as error:
        raise HostUnavailable(f"an offline corpus can't be read: {described(error)}") from error


def _index(corpus: Path) -> Path:
    """The index of the corpus as it is now, made once on this machine."""
    folder = cache_folder() / "corpora"
    looked, path = _fresh.get((folder, corpus), (-FRESH_SECONDS, folder))
    if time.monotonic() - looked < FRESH_SECONDS and path.exists():
        return path
    with _indexing:
        looked = time.monotonic()
        files = _files(corpus)
        stats = [(str(file), (found := file.stat()).st_size, found.st_mtime_ns) for file in files]
        # the schema, too: an index made by another release isn't read
        digest = hashlib.sha256(json.dumps([SCHEMA, stats]).encode()).hexdigest()[:32]
        path = folder / f"{digest}.sqlite"
        if not path.exists():
            _make(path, corpus, files)
    _fresh[folder, corpus] = looked, path
    return path


def _make(path: Path, corpus: Path, files: list[Path]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.unlink(missing_ok=True)
    with closing(sqlite3.connect(draft)) as index, index:
        index.execute(SCHEMA)
        index.executemany("INSERT INTO documents VALUES (?, ?, ?)", _documents(corpus, files))
    # renamed once it is whole: other processes open whatever has this name
    draft.rename(path)


def _files(corpus: Path) -> list[Path]:
    if corpus.is_file():
        return [corpus]
    files = sorted(file for file in corpus.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise InvalidInput(
            f"the corpus {corpus} is no JSONL file and no folder of {', '.join(SUFFIXES)} files"
        )
    return files


def _documents(corpus: Path, files: list[Path]) -> Iterator[tuple[str, str, str]]:
    if corpus.is_dir():
        for file in files:
            yield file.stem, file.read_text(errors="replace"), f"corpus://{file.relative_to(corpus)}"
        return
    with corpus.open(errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
                yield str(found.get("title") or found["url"]), str(found["text"]), str(found["url"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InvalidInput(
                    f"{corpus}, line {number}: a document has `url`, `title` and `text`"
                ) from error
