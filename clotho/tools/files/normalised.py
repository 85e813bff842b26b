"""Searching a text by a normalised form of it, and finding the places in the text itself; in linear time."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial

Span = tuple[int, int]


def occurrences(text: str, wanted: str) -> Iterator[Span]:
    """The spans of `wanted`, which is not empty, in `text`, without overlaps."""
    start = text.find(wanted)
    while start >= 0:
        yield start, start + len(wanted)
        start = text.find(wanted, start + len(wanted))


class Normalised:
    """`text` with every match of `pattern` replaced."""

    def __init__(
        self, text: str, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]
    ) -> None:
        self._original = text
        self._normalise: Callable[[str], str] = partial(pattern.sub, replacement)
        self._text = self._normalise(text)
        self._ends: list[int] = []
        self._shifts: list[int] = []
        shift = 0
        for match in pattern.finditer(text):
            if growth := len(replacement(match)) - len(match.group()):
                shift -= growth
                self._ends.append(match.end() - shift)
                self._shifts.append(shift)

    def spans(self, wanted: str) -> Iterator[Span]:
        """The spans of the original that equal `wanted` once both are normalised."""
        wanted = self._normalise(wanted)
        for start, stop in occurrences(self._text, wanted):
            span = self._origin(start), self._origin(stop)
            if self._normalise(self._original[slice(*span)]) == wanted:
                yield span

    def _origin(self, position: int) -> int:
        before = bisect_right(self._ends, position)
        return position + (self._shifts[before - 1] if before else 0)


def blocks(text: str, wanted: str, normalise: Callable[[str], str]) -> Iterator[Span]:
    """The spans of whole lines of `text` that equal those of `wanted` once both are normalised.

    The last line's end belongs to a block if `wanted` ends with one.
    """
    lines = text.split("\n")
    needle = "\n".join(["", *map(normalise, wanted.removesuffix("\n").split("\n")), ""])
    count, ending = needle.count("\n") - 1, wanted.endswith("\n")
    keys, starts = [0], [0]
    for line in lines:
        keys.append(keys[-1] + len(normalise(line)) + 1)
        starts.append(starts[-1] + len(line) + 1)
    hay = "\n".join(["", *map(normalise, lines), ""])
    at = hay.find(needle)
    while at >= 0:
        first = bisect_right(keys, at) - 1
        yield starts[first], min(starts[first + count] - (not ending), len(text))
        at = hay.find(needle, at + len(needle) - 1)
