"""Groups as JSON lines in one file, which a later process goes on with."""

import json
from pathlib import Path
from typing import Any


class GroupFile:
    """Appends each group once. Opening it cuts off a line that a dying process left unfinished."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self.written: set[str] = set()
        self._file.seek(0)
        end = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            end += len(line)
            self.written.add(json.loads(line).get("group_id", ""))
        self._file.truncate(end)

    def write(self, group: dict[str, Any]) -> None:
        """Write the group unless the file has it."""
        name = group["group_id"]
        if name in self.written:
            return
        self._file.write(json.dumps(group, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        self.written.add(name)

    def close(self) -> None:
        self._file.close()
