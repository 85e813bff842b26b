"""Searching a text by a normalised form of it, and finding the places in the text itself.

All of it takes linear time, and no more memory than a few copies of the text: no list of its lines is made.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator

Span = tuple[int, int]

BLANKS = re.compile(r"[^\S\n]++")
EDGES = re.compile(r"(?<![^\S\n])[^\S\n]++(?=\n|\Z)|(?<![^\n])[^\S\n]++")
"""Blanks at the ends of lines. A run within a line is looked at once: from its other characters no match begins."""
SKIPPED_CHARS = 1 << 16


def occurrences(text: str, wanted: str) -> Iterator[Span]:
    """The spans of `wanted`, which is not empty, in `text`, without overlaps."""
    start = text.find(wanted)
    while start >= 0:
        yield start, start + len(wanted)
        start = text.find(wanted, start + len(wanted))


class Normalised:
    """`text` with every match of `pattern` replaced by `replacement`, or by what this function returns for it."""

    def __init__(
        self, text: str, pattern: re.Pattern[str], replacement: str | Callable[[re.Match[str]], str]
    ) -> None:
        self._original = text
        self._pattern = pattern
        self._replacement = replacement
        self._text = self._normalised(text)

    def spans(self, wanted: str) -> Iterator[Span]:
        """The spans of the original that equal `wanted` once both are normalised."""
        wanted = self._normalised(wanted)
        if wanted not in self._text:
            return
        ends, shifts = self._shifts()
        for each in occurrences(self._text, wanted):
            start, stop = (at + shifts[bisect_right(ends, at)] for at in each)
            # a match may end within a replacement, which has no such place in the original
            if self._normalised(self._original[start:stop]) == wanted:
                yield start, stop

    def _normalised(self, text: str) -> str:
        return self._pattern.sub(self._replacement, text)

    def _shifts(self) -> tuple["array[int]", "array[int]"]:
        """Ends of replacements in the normalised text, and the shift to the original of each stretch between."""
        ends, shifts, shift = array("q"), array("q", [0]), 0
        for match in self._pattern.finditer(self._original):
            new = self._replacement if isinstance(self._replacement, str) else self._replacement(match)
            if growth := len(new) - (match.end() - match.start()):
                shift -= growth
                ends.append(match.end() - shift)
                shifts.append(shift)
        return ends, shifts


def trimmed(text: str) -> str:
    """`text` without blanks at the ends of its lines."""
    return EDGES.sub("", text)


def collapsed(text: str) -> str:
    """`text` without blanks at the ends of its lines, and with one space for each run of them within."""
    return BLANKS.sub(" ", text).replace(" \n", "\n").replace("\n ", "\n").strip(" ")


def blocks(text: str, wanted: str, normalise: Callable[[str], str]) -> Iterator[Span]:
    """The spans of whole lines of `text` that equal those of `wanted` once `normalise` is applied to both.

    `normalise` keeps the number of lines. The last line's end belongs to a block if `wanted` ends with one.
    """
    lines = normalise(wanted.removesuffix("\n"))
    needle, hay = f"\n{lines}\n", f"\n{normalise(text)}\n"
    count, ending = needle.count("\n") - 1, wanted.endswith("\n")
    before, start, at = 0, 0, hay.find(needle)
    while at >= 0:
        start = _line_after(text, start, hay.count("\n", before, at))
        yield start, min(_line_after(text, start, count) - (not ending), len(text))
        # - 1: the newline that ends a block also begins the next
        before, at = at, hay.find(needle, at + len(needle) - 1)


def _line_after(text: str, start: int, lines: int) -> int:
    """The offset of the line that follows the one at `start` by `lines`."""
    while (skipped := text.count("\n", start, start + SKIPPED_CHARS)) < lines and start < len(text):
        start, lines = start + SKIPPED_CHARS, lines - skipped
    for _ in range(lines):
        end = text.find("\n", start)
        start = (len(text) if end < 0 else end) + 1
    return start
