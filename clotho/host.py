"""This machine: the name that it keeps, and the programs on it."""

import hashlib
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
    return _kept("host", f"{platform.node().lower()[:32]}-{uuid.uuid4().hex[:8]}")


def machine_id() -> str:
    """An id of this machine, which differs from those of machines that share its name, home or image."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    # the kept name is shared by machines of one home or image; the boot id is not
    parts = (_kept("machine", uuid.uuid4().hex), platform.node(), boot.read_text() if boot.exists() else "")
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]


def _kept(name: str, new: str) -> str:
    """The text that the cache folder keeps under `name`: the `new` of the first caller, written whole."""
    path = cache_folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        draft = path.with_name(f"{name}.{uuid.uuid4().hex}")
        draft.write_text(new)
        with suppress(FileExistsError):
            # link, not write: of two processes that start at once both read the first one's name, whole
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text()


def program_on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None
