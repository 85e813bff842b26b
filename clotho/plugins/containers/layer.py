"""The files that a container has written over its image's, where its storage driver keeps them on this host."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path


def written(layer: Path) -> Iterator[str]:
    """The paths in a container's own layer, as its commands see them: what was made, changed or deleted.

    Folders come before what is in them. Raises OSError for what this process may not read.
    """
    remaining = [str(layer)]
    while remaining:
        with os.scandir(remaining.pop()) as entries:
            for entry in entries:
                yield "/" + os.path.relpath(entry.path, layer)
                if entry.is_dir(follow_symlinks=False):
                    remaining.append(entry.path)


def state(layer: Path) -> str:
    """Digest of the names, modes, sizes and times in a layer. Raises OSError as `written` does."""
    digest = hashlib.sha256()
    for path in sorted(written(layer)):
        found = os.lstat(f"{layer}{path}")
        digest.update(
            # ctime: commands can set a file's mtime back
            f"{path}\0{found.st_mode}\0{found.st_size}\0{found.st_ctime_ns}\0".encode(
                errors="surrogateescape"
            )
        )
    return digest.hexdigest()
