"""This machine: the name that it keeps, and the programs on it."""

import os
import platform
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from clotho.config import Settings, cache_folder


def host_name(settings: Settings) -> str:
    """The configured name, else one that is made on first use and kept: it must outlive restarts."""
    if settings.host is not None:
        return settings.host
    path = cache_folder() / "host"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = f"{platform.node().lower()[:32]}-{uuid.uuid4().hex[:8]}"
        # Written aside: another process, which begins at the same time, reads it whole.
        unfinished = path.with_name(f".{made}")
        try:
            unfinished.write_text(made)
            with suppress(FileExistsError):
                os.link(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
    return path.read_text()


def program_on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None
