"""A bound on the work of comparing texts that a policy chooses, and difflib with it, which is cubic at worst.

The bound counts steps, not seconds: the same texts come to the same end on every machine and in every attempt.
"""

from collections.abc import Sequence
from difflib import Match, SequenceMatcher

MAX_STEPS = 10_000_000
"""Bound on the steps of comparing for one result, of up to 0.1 µs each."""
CHARS_SCANNED = 128
CHARS_PASSED = 3
"""Characters that one step searches as they are, or normalises and searches."""


class TooMuchWork(Exception):
    """The comparison of two texts took too many steps, and was given up."""


class Budget:
    """Steps that are left."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Raises TooMuchWork."""
        self._left -= steps
        if self._left < 0:
            raise TooMuchWork

    def spend_scan(self, text: str) -> None:
        """Spend the steps of searching `text`. Raises TooMuchWork."""
        self.spend(len(text) // CHARS_SCANNED)

    def spend_pass(self, text: str) -> None:
        """Spend the steps of normalising and searching `text`. Raises TooMuchWork."""
        self.spend(len(text) // CHARS_PASSED)


class BoundedMatcher(SequenceMatcher[str]):
    """A SequenceMatcher that raises TooMuchWork once `budget` is used up; others may share the budget."""

    def __init__(self, a: Sequence[str], b: Sequence[str], budget: Budget, autojunk: bool = True) -> None:
        self._budget = budget
        budget.spend(len(a) + len(b))
        self.b2j: dict[str, list[int]] = {}
        super().__init__(None, a, b, autojunk)

    def set_seq1(self, a: Sequence[str]) -> None:
        self._first = a
        super().set_seq1(a)

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        # difflib's inner loop runs once for each pair of equal elements
        compared = self._first[alo:ahi]
        self._budget.spend(len(compared) + sum(len(self.b2j.get(each, ())) for each in compared))
        return super().find_longest_match(alo, ahi, blo, bhi)
