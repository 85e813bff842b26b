"""The two strategies that accept text which is only similar: by its first and last line, or line by line."""

from collections.abc import Sequence

from clotho.tools.files.matching import BoundedMatcher, Budget, TooMuchWork
from clotho.tools.files.normalised import Span

UNIQUE_ANCHOR_SIMILARITY = 0.50
ANCHOR_SIMILARITY = 0.70
LINE_SIMILARITY = 0.80
SIMILAR_LINES = 0.50
COMPARED_CHARS = 300
"""Characters of each line that are compared: the time is quadratic."""
MOST_BLOCKS = 50
"""Most similar blocks that are told apart: several are refused in any case."""
MOST_LINES = 100_000
"""Lines of a file in which similar blocks are looked for."""
MOST_COMPARISONS = 200_000
"""Lines of the file times lines of the text looked for; beyond, similarity is not tried."""


def block_anchor(text: str, old: str, budget: Budget) -> Sequence[Span]:
    """Blocks of as many lines as `old`, with its first and last line and a similar middle; at least three lines."""
    if old.removesuffix("\n").count("\n") < 2 or text.count("\n") > MOST_LINES:
        return ()
    budget.spend_pass(text)
    wanted, lines = _lines(old), _lines(text)
    first, last, size = wanted[0].strip(), wanted[-1].strip(), len(wanted)
    anchored = [
        i
        for i in range(len(lines) - size + 1)
        if lines[i].strip() == first and lines[i + size - 1].strip() == last
    ]
    least = UNIQUE_ANCHOR_SIMILARITY if len(anchored) == 1 else ANCHOR_SIMILARITY
    try:
        found = {i: _middle_similarity(lines[i + 1 : i + size - 1], wanted[1:-1], budget) for i in anchored}
    except TooMuchWork:
        return ()
    return _spans(lines, old, _apart({i: score for i, score in found.items() if score >= least}, size))


def context_aware(text: str, old: str, budget: Budget) -> Sequence[Span]:
    """Blocks of as many lines as `old` of which at least half are similar to its own; blank lines don't count."""
    if (text.count("\n") + 1) * (old.count("\n") + 1) > MOST_COMPARISONS:
        return ()
    budget.spend_pass(text)
    wanted, lines = _lines(old), _lines(text)
    try:
        alike = {j: _alike(lines, line, budget) for j, line in enumerate(wanted) if line.strip()}
    except TooMuchWork:
        return ()
    scores = {}
    for i in range(len(lines) - len(wanted) + 1):
        similar = sum(lines[i + j] in likes for j, likes in alike.items())
        if similar >= SIMILAR_LINES * len(alike):
            scores[i] = similar / len(alike)
    return _spans(lines, old, _apart(scores, len(wanted)))


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _apart(scores: dict[int, float], size: int) -> list[int]:
    """The blocks of `size` lines with the best scores, without overlaps, in order of place."""
    kept: list[int] = []
    for i in sorted(scores, key=lambda i: (-scores[i], i)):
        if all(abs(i - other) >= size for other in kept):
            kept.append(i)
        if len(kept) > MOST_BLOCKS:
            break
    return sorted(kept)


def _spans(lines: list[str], old: str, blocks: list[int]) -> list[Span]:
    """Blocks of lines as character ranges; the last line's end belongs to one if `old` has it."""
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    size, ending = len(_lines(old)), old.endswith("\n")
    return [(starts[i], starts[i + size] - (not ending)) for i in blocks]


def _alike(lines: list[str], wanted: str, budget: Budget) -> frozenset[str]:
    """The `lines` that are similar to `wanted`."""
    likeness = _Likeness(wanted, budget)
    return frozenset(line for line in set(lines) if likeness.ratio(line, LINE_SIMILARITY) >= LINE_SIMILARITY)


def _middle_similarity(ours: list[str], theirs: list[str], budget: Budget) -> float:
    """The mean similarity of corresponding lines, weighted by their length."""
    pairs = [(a.strip(), b.strip()) for a, b in zip(ours, theirs, strict=True)]
    weight = sum(len(a) + len(b) for a, b in pairs)
    return (
        sum(_Likeness(b, budget).ratio(a) * (len(a) + len(b)) for a, b in pairs) / weight if weight else 1.0
    )


class _Likeness:
    """Similarity of lines to one line."""

    def __init__(self, line: str, budget: Budget) -> None:
        self._budget = budget
        # the constant line is the second: difflib keeps an index of that one
        # autojunk would ignore frequent characters of lines over 200 characters
        self._matcher = BoundedMatcher("", line.strip()[:COMPARED_CHARS], budget, autojunk=False)

    def ratio(self, line: str, least: float = 0.0) -> float:
        """The similarity of `line`, or 0 where it is below `least`."""
        compared = line.strip()[:COMPARED_CHARS]
        self._budget.spend(len(compared))
        self._matcher.set_seq1(compared)
        # upper bounds of the ratio, which cost far less
        bounds = (self._matcher.real_quick_ratio, self._matcher.quick_ratio)
        return self._matcher.ratio() if all(bound() >= least for bound in bounds) else 0.0
