"""Files that are whole or not there, whenever their writer is killed."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write the file whole, in place of what is there."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
