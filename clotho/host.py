"""This machine: the name that it keeps, and the programs on it."""

import platform
import shutil
import uuid
from pathlib import Path

from clotho.config import Settings, cache_folder


def host_name(settings: Settings) -> str:
    """The configured name, else one that is made on first use and kept: it must outlive restarts."""
    if settings.host is not None:
        return settings.host
    path = cache_folder() / "host"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x") as file:
            file.write(f"{platform.node().lower()[:32]}-{uuid.uuid4().hex[:8]}")
    except FileExistsError:
        pass
    return path.read_text()


def program_on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None
