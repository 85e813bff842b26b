"""Making and deleting the folders that a sandbox's user owns, whatever commands did to them."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from clotho.errors import SandboxUnavailable
from clotho.sandbox.local.bubblewrap import other_names


def link_programs(folder: Path) -> None:
    folder.mkdir()
    for name, program in other_names().items():
        (folder / name).symlink_to(program)


def delete_any(folder: Path) -> None:
    """Delete `folder` by rm: folders can be nested deeper than Python follows, and hold mounts."""
    remove = ["rm", "-rf", "--one-file-system", str(folder)]
    result = subprocess.run(remove, capture_output=True, text=True)
    if result.returncode != 0 and os.geteuid() != 0:
        # Commands have closed folders, which keeps out everyone but root; find opens each before it goes in.
        closed = [
            "find",
            str(folder),
            "-xdev",
            "-type",
            "d",
            "!",
            "-perm",
            "-700",
            "-exec",
            "chmod",
            "u+rwx",
            "{}",
            ";",
        ]
        subprocess.run(closed, capture_output=True)
        result = subprocess.run(remove, capture_output=True, text=True)
    if result.returncode != 0:
        raise SandboxUnavailable(f"a sandbox can't be deleted: {result.stderr.strip()}")


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
