"""Making and deleting the folders that a sandbox's user owns, whatever commands did to them."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from clotho.sandbox.local.bubblewrap import other_names


def link_programs(folder: Path) -> None:
    folder.mkdir()
    for name, program in other_names().items():
        (folder / name).symlink_to(program)


def delete_own(folder: Path) -> None:
    """Delete the remains of a sandbox that could write to its own disks alone, which are gone."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def make_owned(path: Path, user: int | None) -> None:
    path.mkdir(parents=True)
    path.chmod(0o755)
    if user is not None:
        os.chown(path, user, user)


def make_enterable(path: Path, user: int | None) -> None:
    """A root of the agent's, which it owns and, without isolation, may have removed or replaced."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    if not path.exists():
        make_owned(path, user)
    elif (mode := path.stat().st_mode) & 0o700 != 0o700:
        path.chmod(mode & 0o7777 | 0o700)
