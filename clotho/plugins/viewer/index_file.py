"""An index on this machine's disk, so that a run of many groups is read from its store once."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import zstandard

from clotho.plugins.viewer.rows import GroupRow, row_from

SCHEMA = 2


class IndexFile:
    """The rows of one run of one store, by their positions. All methods block."""

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
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            temporary.touch(mode=0o600)
            temporary.write_bytes(zstandard.compress(body, 1))
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
