"""Unified diffs, as a model is shown what it changed."""

import difflib
import re
from collections.abc import Iterator

LONGEST = 20_000
CONTEXT = 3
MOST_COMPARED = 4_000
"""Lines between the first and the last difference; comparing more may take minutes."""

HUNK = re.compile(r"^@@ -(\d+)([,\d]*) \+(\d+)([,\d]*) @@$")


def unified(path: str, before: str | None, after: str | None, moved_to: str | None = None) -> str:
    """The change of one file, cut to 20,000 characters; None stands for no file."""
    names = (
        "/dev/null" if before is None else f"a/{path}",
        "/dev/null" if after is None else f"b/{moved_to or path}",
    )
    text = "\n".join(_lines((before or "").splitlines(), (after or "").splitlines(), names))
    if moved_to is not None:
        text = f"rename {path} -> {moved_to}\n{text}".rstrip("\n")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n... [diff truncated]"


def _lines(before: list[str], after: list[str], names: tuple[str, str]) -> Iterator[str]:
    """The lines of a diff that compares nothing before the first and after the last difference."""
    start = _agreeing(before, after)
    stop = _agreeing(before[start:][::-1], after[start:][::-1])
    start, stop = max(0, start - CONTEXT), max(0, stop - CONTEXT)
    old, new = before[start : len(before) - stop], after[start : len(after) - stop]
    if len(old) + len(new) > MOST_COMPARED:
        yield from (f"--- {names[0]}", f"+++ {names[1]}", f"... [{len(old)} lines became {len(new)}]")
        return
    for number, line in enumerate(difflib.unified_diff(old, new, *names, n=CONTEXT, lineterm="")):
        yield HUNK.sub(lambda hunk: _moved(hunk, start), line) if number > 1 else line


def _agreeing(ours: list[str], theirs: list[str]) -> int:
    """How many first lines are equal."""
    pairs = zip(ours, theirs, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))


def _moved(hunk: re.Match[str], by: int) -> str:
    return f"@@ -{int(hunk[1]) + by}{hunk[2]} +{int(hunk[3]) + by}{hunk[4]} @@"
