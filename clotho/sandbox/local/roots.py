"""The folder of a user's sandboxes, which no other user can change or replace."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from clotho.errors import InvalidInput

PASSABLE = ("sandboxes",)
"""Folders that the users of sandboxes pass through, each to its own, which nobody else may enter."""
OWN = ("control", "locks")
EMPTY_FOLDER, EMPTY_FILE = "empty", "nothing"
"""Names of the empty folder and file that are mounted over paths that sandboxes must not see."""


def prepare(root: Path) -> None:
    """Make what is missing. Raises InvalidInput for a root in others' reach, or out of that of sandboxes."""
    root.mkdir(parents=True, exist_ok=True)
    _require_own(root)
    # others pass through, and can't list what is in it
    root.chmod(0o711)
    for name in (*PASSABLE, *OWN):
        folder = root / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711 if name in PASSABLE else 0o700)
    (root / EMPTY_FOLDER).mkdir(exist_ok=True)
    (root / EMPTY_FILE).touch(0o444)
    # Found here: a start would fail later, without saying which folder is closed.
    closed = [path for path in root.parents if not path.stat().st_mode & 0o001]
    if closed and os.geteuid() == 0:
        raise InvalidInput(f"sandboxes in {root}: their users can't pass through {closed[-1]}")


def state(root: Path) -> tuple[object, ...]:
    """The state that `prepare` depends on: while it stays the same, `prepare` has nothing to do."""
    inside = (f"{root}/{name}" for name in (*PASSABLE, *OWN, EMPTY_FOLDER, EMPTY_FILE))
    return (os.path.realpath(root), *map(_state, (*map(str, _on_the_way(root)), *inside)))


def _state(path: str) -> tuple[int, ...]:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid


def _require_own(root: Path) -> None:
    me = os.geteuid()
    if root.stat().st_uid != me:
        raise InvalidInput(f"sandboxes in {root}: it is another user's; give another sandbox.root")
    for path in _on_the_way(root):
        found = path.lstat()
        if found.st_uid not in (0, me):
            raise InvalidInput(
                f"sandboxes in {root}: {path} is user {found.st_uid}'s, who could replace them"
            )
        if stat.S_ISDIR(found.st_mode) and found.st_mode & 0o002 and not found.st_mode & stat.S_ISVTX:
            raise InvalidInput(f"sandboxes in {root}: everybody may change {path}")


def _on_the_way(root: Path) -> Iterator[Path]:
    """The folders and links that lead to `root`: the owner of a link can let it lead elsewhere."""
    real = root.resolve()
    yield from (root, *root.parents)
    if real != root:
        yield from (real, *real.parents)
