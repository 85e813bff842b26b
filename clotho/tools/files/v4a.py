"""Patches in the V4A format: parsed, checked as a whole, and turned into what has to change on disk.

*** Begin Patch
*** Update File: path            then hunks: "@@ a line to start from @@", and lines that begin with " ", "-", "+"
*** Add File: path               then lines that begin with "+"
*** Delete File: path
*** Move File: path -> path
*** End Patch
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.tools.files import fuzzy
from clotho.tools.files.matching import Budget

HEADER = re.compile(r"\*\*\*\s*(Update|Add|Delete|Move) File:(.+)")
MOVE_TO = re.compile(r"\*\*\*\s*Move to:(.+)")
BOUNDARY = re.compile(r"\*\*\*\s*(Begin Patch|End Patch|End of File)\s*")


MAX_CHARS = 2 * fuzzy.MAX_CHARS
"""Characters of all files that are changed, before and after each operation."""


@dataclass
class Hunk:
    """Lines with their sign: " ", "-" or "+"; an empty line may lack it, which makes it a blank one to keep."""

    hint: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)

    def text(self, *signs: str) -> str:
        return "".join(f"{line}\n" for sign, line in self.lines if (sign or " ") in signs)

    def without_trailing_gap(self) -> "Hunk":
        """The hunk without the empty lines at its end, which only separate it from what follows."""
        end = max((i for i, (sign, _) in enumerate(self.lines, start=1) if sign), default=0)
        return Hunk(self.hint, self.lines[:end])


@dataclass
class Operation:
    action: str
    """Update, Add, Delete or Move."""
    path: str
    destination: str | None = None
    hunks: list[Hunk] = field(default_factory=list)


class Step(FrozenModel):
    """A file to delete, or to rename where `destination` is set."""

    path: str
    destination: str | None = None


@dataclass(frozen=True)
class Write:
    """A file's whole new text."""

    path: str
    text: str
    origin: str | None
    """The path it had before the patch; None for a new file."""


@dataclass(frozen=True)
class Change:
    """A file before and after; None where there is none."""

    path: str
    before: str | None
    after: str | None
    moved_to: str | None = None


@dataclass(frozen=True)
class Plan:
    """The plan of a patch: the steps in order, then the writes."""

    steps: tuple[Step, ...]
    writes: tuple[Write, ...]
    changes: tuple[Change, ...]
    """Changes for display, in the order of the patch."""


def parse(patch: str) -> list[Operation]:
    """Raises InvalidInput where `patch` has no operation, or a line that belongs to none."""
    operations: list[Operation] = []
    for number, line in enumerate(patch.strip("\n").split("\n"), start=1):
        if BOUNDARY.fullmatch(line):
            continue
        if header := HEADER.fullmatch(line):
            operations.append(_operation(header[1], header[2].strip()))
        elif operations:
            _take(line, operations[-1], number)
        elif line.strip():
            raise InvalidInput(
                f"patch line {number}: expected '*** Update File: path' or the like, not {line[:80]!r}"
            )
    if not operations:
        raise InvalidInput(
            "the patch has no '*** Update File:', '*** Add File:', '*** Delete File:' or '*** Move File:'"
        )
    for operation in operations:
        operation.hunks = [hunk.without_trailing_gap() for hunk in operation.hunks]
        changed = any(sign in ("-", "+") for hunk in operation.hunks for sign, _ in hunk.lines)
        if operation.action == "Update" and not changed and operation.destination is None:
            raise InvalidInput(f"the update of {operation.path} changes nothing")
    return operations


def _operation(action: str, target: str) -> Operation:
    if action != "Move":
        return Operation(action, target)
    path, arrow, destination = target.partition(" -> ")
    if not arrow or not destination.strip():
        raise InvalidInput(f"'*** Move File: {target}': write it as 'old path -> new path'")
    return Operation(action, path.strip(), destination.strip())


def _take(line: str, operation: Operation, number: int) -> None:
    """Add a line of the patch's body to the operation it belongs to."""
    if operation.action == "Update" and (moved := MOVE_TO.fullmatch(line)):
        operation.destination = moved[1].strip()
    elif operation.action == "Update" and line.startswith("@@"):
        operation.hunks.append(Hunk(hint=line[2:].strip().removesuffix("@@").strip()))
    elif operation.action in ("Update", "Add"):
        if not operation.hunks:
            operation.hunks.append(Hunk())
        sign, text = (line[0], line[1:]) if line[:1] in (" ", "-", "+") else (" " if line else "", line)
        if operation.action == "Add" and sign != "+" and line.strip():
            raise InvalidInput(f"patch line {number}: the lines of an added file begin with '+'")
        operation.hunks[-1].lines.append((sign, text))
    elif line.strip():
        raise InvalidInput(f"patch line {number}: {operation.action} File takes no lines")


@dataclass
class _File:
    """A file as it is in the middle of a patch."""

    text: str
    before: str
    origin: str | None
    stored_at: str | None
    """The file's path on disk after the patch's steps so far; None for one that the patch adds."""


class _Tree:
    """The files that a patch names, as they are after each of its operations."""

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._read = read
        self._files: dict[str, _File | None] = {}

    def find(self, path: str) -> _File | None:
        if path not in self._files:
            text = self._read(path)
            self._files[path] = None if text is None else _File(text, text, path, path)
        return self._files[path]

    def get(self, path: str) -> _File:
        file = self.find(path)
        if file is None:
            raise InvalidInput(f"{path}: no such file")
        return file

    def place(self, path: str, file: _File | None) -> None:
        if file is not None and self.find(path) is not None:
            raise InvalidInput(f"{path}: the file exists already")
        self._files[path] = file

    def writes(self) -> tuple[Write, ...]:
        return tuple(
            Write(path, file.text, file.origin)
            for path, file in self._files.items()
            if file is not None and (file.stored_at is None or file.text != file.before)
        )


def paths(operations: Sequence[Operation]) -> list[str]:
    """Every path that the operations name, once, in order."""
    named = [path for operation in operations for path in (operation.path, operation.destination) if path]
    return list(dict.fromkeys(named))


def edited(operations: Sequence[Operation]) -> frozenset[str]:
    """The paths of files whose text the operations depend on; the others are only moved or deleted."""
    found: set[str] = set()
    # backwards: an update under a file's second name needs the text that is read under its first
    for operation in reversed(operations):
        if operation.action == "Update" or operation.destination in found:
            found.add(operation.path)
    return frozenset(found)


def plan(operations: Sequence[Operation], read: Callable[[str], str | None]) -> Plan:
    """Plan `operations` on files as `read` gives them; one that can't be done refuses all of them.

    All searches share a budget. Raises InvalidInput naming the operation at fault.
    """
    tree, steps, changes, budget = _Tree(read), list[Step](), list[Change](), Budget()
    room = MAX_CHARS
    for operation in operations:
        change = _apply(operation, tree, steps, budget)
        room -= len(change.before or "") + len(change.after or "")
        if room < 0:
            raise InvalidInput(
                f"the patch changes more than {MAX_CHARS:,} characters of files: make it in several, and put the "
                "hunks of a file under one '*** Update File:'"
            )
        changes.append(change)
    return Plan(tuple(steps), tree.writes(), tuple(changes))


def _apply(operation: Operation, tree: _Tree, steps: list[Step], budget: Budget) -> Change:
    path, destination = operation.path, operation.destination
    if operation.action == "Add":
        text = "".join(hunk.text("+") for hunk in operation.hunks)
        tree.place(path, _File(text, text, None, None))
        return Change(path, None, text)
    file = tree.get(path)
    before = file.text
    if operation.action == "Delete":
        tree.place(path, None)
        if file.stored_at is not None:
            steps.append(Step(path=file.stored_at))
        return Change(path, before, None)
    for hunk in operation.hunks:
        file.text = patched(file.text, hunk, path, budget)
    if destination is not None:
        # in this order a move of a file onto itself is refused
        tree.place(destination, file)
        tree.place(path, None)
        if file.stored_at is not None:
            steps.append(Step(path=file.stored_at, destination=destination))
            file.stored_at = destination
    return Change(path, before, file.text, destination)


def patched(text: str, hunk: Hunk, path: str, budget: Budget) -> str:
    """`text` with one hunk applied. Raises InvalidInput where its lines aren't found, or in several places."""
    ended = text.endswith("\n") or not text
    whole = text if ended else f"{text}\n"
    start = _after_hint(whole, hunk.hint)
    old, new = hunk.text(" ", "-"), hunk.text(" ", "+")
    if not old:
        place = len(whole) if start is None else start
        result = whole[:place] + hunk.text("+") + whole[place:]
    else:
        result = _replaced(whole, hunk, start, old, new, path, budget)
    return result if ended else result.removesuffix("\n")


def _replaced(text: str, hunk: Hunk, start: int | None, old: str, new: str, path: str, budget: Budget) -> str:
    match = fuzzy.find(text, old, budget, whole_lines=True)
    if match is None:
        raise InvalidInput(f"{path}: could not find the lines of this hunk:\n{old[:400]}")
    spans = match.spans
    if start is not None:
        line = text.rfind("\n", 0, start - 1) + 1
        # from the hint's own line on, since hunks may repeat it; a hint that comes too late is ignored
        spans = tuple(span for span in spans if span[0] >= line)[:1] or spans
    if len(spans) > 1:
        raise InvalidInput(
            f"{path}: the lines of this hunk are in {len(spans)} places, add context:\n{old[:400]}"
        )
    return fuzzy.substituted(text, fuzzy.Match(match.strategy, spans), old, new)


def _after_hint(text: str, hint: str) -> int | None:
    """The offset of the line after the one that has `hint`."""
    at = text.find(hint) if hint else -1
    return None if at < 0 else text.index("\n", at) + 1
