"""Showing a part of a text file with line numbers."""

from dataclasses import dataclass

MAX_LINE_CHARS = 2_000
CUT = "... [truncated]"


@dataclass(frozen=True)
class Window:
    """Lines `first` to `last` of `total`, numbered from 1."""

    content: str
    first: int
    last: int
    total: int


def window(text: str, offset: int, limit: int) -> Window:
    """`limit` lines of `text` from line `offset` on."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    shown = lines[offset - 1 : offset - 1 + limit]
    return Window(
        content="\n".join(f"{number:6d}|{_cut(line)}" for number, line in enumerate(shown, start=offset)),
        first=offset,
        last=offset + len(shown) - 1,
        total=len(lines),
    )


def _cut(line: str) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + CUT
