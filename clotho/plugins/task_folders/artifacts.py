"""Files that a task asks to be kept: found in the sandbox after the agent, bounded, and named for the journal."""

import math
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, Protocol

from clotho.errors import EnvironmentFailed, WorkspaceRefused
from clotho.escaping import truncate_middle
from clotho.plugins.task_folders.task_file import Artifact, Collect

USUAL = Artifact(source="/logs/artifacts", exclude=(".keep",))
"""The artifact that every task keeps."""
MOST_FILES = 10_000
MOST_KIB = 64 << 10
"""KiB of a rollout's artifacts together."""
MOST_PARTS = 64
"""Folders and name in the path of a file below its source."""
COMMAND_CHARACTERS = 100
PATH_CHARACTERS = 200
ROOM_BYTES = 1 << 20
UNUSABLE = 127


class Sandbox(Protocol):
    """The verifier's tools that artifacts need."""

    def terminal(self, command: str, timeout: float = ..., /) -> dict[str, Any]: ...

    def read_bytes(self, path: str, max_bytes: int = ..., /) -> bytes | None: ...

    def write_bytes(self, path: str, content: bytes, /) -> None: ...


@dataclass(frozen=True)
class ArtifactFile:
    """A file that was read from the sandbox."""

    path: str
    name: str
    """Relative, without `..`."""
    executable: bool
    content: bytes


@dataclass(frozen=True)
class Artifacts:
    files: tuple[ArtifactFile, ...]
    faults: tuple[str, ...]
    """One sentence for each command that failed and each file that was left out."""
    whole: bool
    """Whether no file was left out."""


def read_artifacts(
    ctx: Sandbox, commands: tuple[Collect, ...], asked: tuple[str | Artifact, ...]
) -> Artifacts:
    """Run the commands, then read the files, as many as there is room for."""
    faults = [fault for each in commands if (fault := _collected(ctx, each)) is not None]
    # those asked for come first: the first that gives a name has it, as in Harbor
    every = (Artifact(source=each) if isinstance(each, str) else each for each in (*asked, USUAL))
    wanted = tuple(dict.fromkeys(every))
    listing = _listing(ctx, wanted)
    failed = len(faults)
    files: list[ArtifactFile] = []
    room = MOST_KIB << 10
    for path, name, executable in _found(wanted, listing):
        fits = executable is not None and len(files) < MOST_FILES
        content = ctx.read_bytes(path, MOST_KIB << 10) if fits else None
        if content is None or len(content) > room:
            faults.append(f"artifact {truncate_middle(path, PATH_CHARACTERS)} was left out")
            continue
        room -= len(content)
        files.append(ArtifactFile(path, name, bool(executable), content))
    return Artifacts(tuple(files), tuple(faults), len(faults) == failed)


def _collected(ctx: Sandbox, collect: Collect) -> str | None:
    """Run a command; what is wrong where it fails."""
    # brackets on lines of their own: a command may end in a comment
    done = ctx.terminal(f"(\n{collect.command}\n)", math.ceil(collect.timeout_sec))
    if done["exit_code"] == 0:
        return None
    return f"collect: {collect.command[:COMMAND_CHARACTERS]!r} failed with exit code {done['exit_code']}"


def _listing(ctx: Sandbox, wanted: tuple[Artifact, ...]) -> bytes:
    """The lists of files. Raises EnvironmentFailed where the sandbox lacks the programs for them.

    Raises WorkspaceRefused where the agent left no room for them, or more files than can be listed in time.
    """
    done = ctx.terminal(_listing_command(wanted))
    if done["exit_code"] == UNUSABLE:
        raise EnvironmentFailed("artifacts can't be listed: the sandbox has no usable find and mktemp")
    listing = ctx.read_bytes(str(done["output"]).strip()) if done["exit_code"] == 0 else None
    if listing is None:
        ctx.write_bytes(f"{USUAL.source}/.room", bytes(ROOM_BYTES))  # raises where the host has none
        raise WorkspaceRefused(f"the artifacts can't be listed: exit code {done['exit_code']}")
    return listing


def _listing_command(wanted: tuple[Artifact, ...]) -> str:
    """Writes lists of each source's files, of the executable and of the too large ones; prints where.

    Names end with a NUL, and lists with an empty name. A source that isn't there is an empty list.
    """
    # a find that starts has an exit code below 126, even where a source is missing or can't be read
    large = f"-size +{MOST_KIB}k"
    lists = "".join(
        f"find {shlex.quote(_path(each))} -type f {which} -print0; [ $? -lt 126 ] && printf '\\0' || exit 1\n"
        for each in wanted
        for which in ("", "-perm -100", large)
    )
    # tried on /dev/null first: some builds of busybox's find lack one of these tests, and would list nothing
    return f"""\
(
command -v mktemp > /dev/null && find /dev/null -type f -perm -100 {large} -print0 || exit {UNUSABLE}
names=$(mktemp) && (
{lists}) > "$names" && echo "$names"
) 2> /dev/null
"""


def _found(wanted: tuple[Artifact, ...], listing: bytes) -> Iterator[tuple[str, str, bool | None]]:
    """Yield each file's path, name and whether it is executable (None: too large or too deep), a name once."""
    lists = _lists(listing)
    taken: set[str] = set()
    for each in wanted:
        files, executable, large = next(lists, []), set(next(lists, [])), set(next(lists, []))
        root = _path(each)
        base = each.destination or root.removeprefix("./").removeprefix("/")
        excluded = _excluding(each.exclude)
        for path in sorted(files):
            inside = path.removeprefix(root).lstrip("/")
            name = f"{base}/{inside}" if inside else base
            parts = inside.split("/", MOST_PARTS)
            if name not in taken and not excluded.search("/".join(parts[:MOST_PARTS])):
                taken.add(name)
                yield path, name, None if path in large or len(parts) > MOST_PARTS else path in executable


def _lists(listing: bytes) -> Iterator[list[str]]:
    names: list[str] = []
    for name in listing.decode(errors="replace").split("\0"):
        if name:
            names.append(name)
        else:
            yield names
            names = []


def _path(artifact: Artifact) -> str:
    # ./: find takes a name that begins with - for an option
    source = artifact.source.rstrip("/")
    return source if source.startswith("/") else f"./{source}"


def _excluding(patterns: Iterable[str]) -> re.Pattern[str]:
    """Finds what tar would exclude: a pattern may match from any slash on, the file or a folder above it."""
    bodies = (translate(pattern.rstrip("/"))[:-2] for pattern in patterns)  # without the end, \Z or \z
    # (?!) matches nothing; an empty pattern would match every file
    return re.compile("|".join(rf"(?:\A|/){body}(?:/|\Z)" for body in bodies) or r"(?!)")
