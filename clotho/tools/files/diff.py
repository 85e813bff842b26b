"""Unified diffs that show a model its changes."""

from collections.abc import Iterator
from contextlib import suppress

from clotho.tools.files.matching import BoundedMatcher, Budget, TooMuchWork

MAX_DIFF_CHARS = 20_000
CONTEXT_LINES = 3
MAX_COMPARED_LINES = 4_000
"""Lines between the first and the last difference; comparing more may take minutes."""


def unified(
    path: str,
    before: str | None,
    after: str | None,
    moved_to: str | None = None,
    *,
    budget: Budget | None = None,
) -> str:
    """The change of one file, cut to 20,000 characters; None stands for no file.

    Once `budget` is used up, which several files may share, it only says how many lines became how many.
    """
    names = (
        "/dev/null" if before is None else f"a/{path}",
        "/dev/null" if after is None else f"b/{moved_to or path}",
    )
    text = "\n".join(_lines(before or "", after or "", names, budget or Budget()))
    if moved_to is not None:
        text = f"rename {path} -> {moved_to}\n{text}".rstrip("\n")
    return text if len(text) <= MAX_DIFF_CHARS else f"{text[:MAX_DIFF_CHARS]}\n... [diff truncated]"


def _lines(before: str, after: str, names: tuple[str, str], budget: Budget) -> Iterator[str]:
    """The lines of a diff that compares nothing before the first and after the last difference."""
    # the equal ends are cut off before lines are made: a small change in a large file stays cheap
    begin = _lines_back(before, _agreeing(before, after))
    start = before.count("\n", 0, begin)
    ours, theirs = before[begin:], after[begin:]
    same = _lines_of(ours, theirs, _agreeing(ours, theirs, from_end=True))
    ours, theirs = ours[: len(ours) - same], theirs[: len(theirs) - same]
    counts = _count(ours), _count(theirs)
    if counts[0] == counts[1] and ours.removesuffix("\n") == theirs.removesuffix("\n"):
        return
    hunks = [f"... [{counts[0]} lines became {counts[1]}]"]
    if sum(counts) <= MAX_COMPARED_LINES:  # as lines of their own, millions would take many times their size
        with suppress(TooMuchWork):
            hunks = list(_hunks(_split(ours), _split(theirs), start, budget))
    yield from (f"--- {names[0]}", f"+++ {names[1]}", *hunks)


def _count(text: str) -> int:
    return text.removesuffix("\n").count("\n") + 1 if text else 0


def _split(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _lines_back(text: str, position: int) -> int:
    """The offset of the first line to show for context before `position`."""
    for _ in range(CONTEXT_LINES + 1):
        position = text.rfind("\n", 0, max(0, position))
    return position + 1


def _lines_of(ours: str, theirs: str, same: int) -> int:
    """How many of the last `same` characters are whole lines in both, without the lines shown for context."""
    starts = [len(text) - same for text in (ours, theirs)]
    inside = any(
        start > 0 and text[start - 1] != "\n" for start, text in zip(starts, (ours, theirs), strict=True)
    )
    position = starts[0]
    for _ in range(CONTEXT_LINES + inside):
        end = ours.find("\n", position)
        if end < 0:
            return 0
        position = end + 1
    return len(ours) - position


def _hunks(old: list[str], new: list[str], start: int, budget: Budget) -> Iterator[str]:
    for group in BoundedMatcher(old, new, budget).get_grouped_opcodes(CONTEXT_LINES):
        (_, i, _, j, _), (_, _, i_end, _, j_end) = group[0], group[-1]
        yield f"@@ -{_range(start + i, start + i_end)} +{_range(start + j, start + j_end)} @@"
        for kind, first, last, new_first, new_last in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[first:last])
                continue
            yield from (f"-{line}" for line in old[first:last])
            yield from (f"+{line}" for line in new[new_first:new_last])


def _range(start: int, stop: int) -> str:
    """A range in a hunk's heading: an empty one begins with the line before it."""
    length = stop - start
    return f"{start + 1}" if length == 1 else f"{start + (length > 0)},{length}"


def _agreeing(ours: str, theirs: str, from_end: bool = False) -> int:
    """The number of equal characters at the beginning, or at the end."""
    low, high = 0, min(len(ours), len(theirs))
    while low < high:
        middle = (low + high + 1) // 2
        same = (
            ours[len(ours) - middle : len(ours) - low] == theirs[len(theirs) - middle : len(theirs) - low]
            if from_end
            else ours[low:middle] == theirs[low:middle]
        )
        low, high = (middle, high) if same else (low, middle - 1)
    return low
