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
    """Delete what is left of a sandbox whose disks are gone: commands wrote to nothing else."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def make_owned(path: Path, user: int | None) -> None:
    path.mkdir(parents=True)
    # mkdir's mode is cut by the worker's umask
    path.chmod(0o755)
    if user is not None:
        os.chown(path, user, user)


def make_enterable(path: Path, user: int | None) -> None:
    """Let commands enter a folder of the agent's, who owns it and may, without isolation, have replaced it."""
    # chmod below follows links: one of the agent's could lead to any file of the worker's
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    if not path.exists():
        make_owned(path, user)
    elif (mode := path.stat().st_mode) & 0o700 != 0o700:
        path.chmod(mode & 0o7777 | 0o700)
