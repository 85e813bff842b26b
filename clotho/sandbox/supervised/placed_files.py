"""Hidden files that a verifier sees at paths of their own, such as /tests/test.sh, each mounted read-only.

The folder above them is one that commands write to. It is emptied for them, and stays writable for what the tests
put beside them. A folder inside it is mounted over itself: what is mounted can be neither renamed nor removed, so
that no command puts another in its place. Everything blocks.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from clotho.errors import InvalidInput

PLACED = "placed"
"""Folder of these files in a verifier's private one."""
MOST_MOUNTS = 200
"""Files and folders mounted one by one; of more, the outermost folders are read-only as a whole."""


@dataclass(frozen=True)
class Mount:
    """A file or folder of this host, and the path at which a verifier sees it."""

    source: Path
    seen: str
    read_only: bool


def split(files: Mapping[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files for the folder of hidden ones, and those with absolute paths of their own."""
    placed = {name: content for name, content in files.items() if name.startswith("/")}
    return {name: content for name, content in files.items() if name not in placed}, placed


def roots_of(placed: Iterable[str], roots: Iterable[str]) -> tuple[str, ...]:
    """The folders among `roots` that the files lie in. Raises InvalidInput for a file that lies in none."""
    found: dict[str, None] = {}
    known = tuple(roots)
    for name in placed:
        parts = PurePosixPath(name).parts
        root = next((each for each in known if name.startswith(f"{each}/")), None)
        if root is None or ".." in parts or str(PurePosixPath(name)) != name:
            raise InvalidInput(
                f"hidden file {name!r}: not a path inside one of {', '.join(known) or 'no folders'}"
            )
        found[root] = None
    return tuple(found)


def write(folder: Path, placed: Mapping[str, bytes]) -> None:
    """Write the files below `folder`, readable for everybody whatever the worker's umask."""
    for name, content in placed.items():
        file = folder / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o755)
    for each, _, _ in os.walk(folder):
        os.chmod(each, 0o755)


def mounts(private: Path, writable: Mapping[str, Path], own: Callable[[Path], None]) -> Iterator[Mount]:
    """Yield the mounts for the files of a verifier's `private` folder, outer ones first.

    Makes the places for them in the `writable` folders; `own` gives a new one to the commands' user.
    """
    for root, place in writable.items():
        source = private / PLACED / root.lstrip("/")
        if not source.is_dir():
            continue
        # Each mount takes bubblewrap 0.1 to 0.2 ms, and more on a host that has many.
        whole = sum(1 for _ in source.rglob("*")) > MOST_MOUNTS
        yield from _mounts_in(source, place, root, whole, own)


def _mounts_in(
    source: Path, place: Path, seen: str, whole: bool, own: Callable[[Path], None]
) -> Iterator[Mount]:
    for each in sorted(source.iterdir()):
        path, inner = f"{seen}/{each.name}", place / each.name
        if not each.is_dir():
            inner.touch()
            yield Mount(each, path, True)
            continue
        inner.mkdir(exist_ok=True)
        own(inner)
        if whole:
            yield Mount(each, path, True)
        else:
            yield Mount(inner, path, False)
            yield from _mounts_in(each, inner, path, whole, own)
