"""Unified diffs that show a model its changes."""

from collections.abc import Iterator
from contextlib import suppress

from clotho.tools.files.matching import BoundedMatcher, Budget, TooMuchWork

MAX_DIFF_CHARS = 20_000
CONTEXT_LINES = 3
MAX_COMPARED_LINES = 4_000
"""Lines between the first and the last difference; comparing more may take minutes."""


def unified(path: str, before: str | None, after: str | None, moved_to: str | None = None) -> str:
    """The change of one file, cut to 20,000 characters; None stands for no file."""
    names = (
        "/dev/null" if before is None else f"a/{path}",
        "/dev/null" if after is None else f"b/{moved_to or path}",
    )
    text = "\n".join(_lines((before or "").splitlines(), (after or "").splitlines(), names))
    if moved_to is not None:
        text = f"rename {path} -> {moved_to}\n{text}".rstrip("\n")
    return text if len(text) <= MAX_DIFF_CHARS else f"{text[:MAX_DIFF_CHARS]}\n... [diff truncated]"


def _lines(before: list[str], after: list[str], names: tuple[str, str]) -> Iterator[str]:
    """The lines of a diff that compares nothing before the first and after the last difference."""
    start = _agreeing(before, after)
    stop = _agreeing(before[start:][::-1], after[start:][::-1])
    start, stop = max(0, start - CONTEXT_LINES), max(0, stop - CONTEXT_LINES)
    old, new = before[start : len(before) - stop], after[start : len(after) - stop]
    hunks = [f"... [{len(old)} lines became {len(new)}]"]
    if len(old) + len(new) <= MAX_COMPARED_LINES:
        with suppress(TooMuchWork):
            hunks = list(_hunks(old, new, start))
    if hunks:
        yield from (f"--- {names[0]}", f"+++ {names[1]}", *hunks)


def _hunks(old: list[str], new: list[str], start: int) -> Iterator[str]:
    for group in BoundedMatcher(old, new, Budget()).get_grouped_opcodes(CONTEXT_LINES):
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


def _agreeing(ours: list[str], theirs: list[str]) -> int:
    """The number of equal lines at the beginning."""
    pairs = zip(ours, theirs, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
