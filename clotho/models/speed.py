"""How quickly a model server answers at the width that it has, as measured by its answers."""

import math
from collections import deque
from collections.abc import Sequence

from clotho.frozen_model import FrozenModel

LATEST = 64
"""Answers of a process that count: older ones say less about now."""
SPARE_TOKENS = 16
"""Tokens by which short answers count as longer: they take time of their own."""
LEAST_VARIANCE, UNKNOWN_VARIANCE = 0.01, 1.0


class Speed(FrozenModel):
    """Sums over the latest answers that one process got at a width."""

    changes: int = 0
    """The width, by its number of changes."""
    refused: int = 0
    """Requests that the server refused for being too many."""
    answers: int = 0
    seconds: float = 0.0
    pace: float = 0.0
    """Logarithms of the seconds for a token: answers have very different lengths, and few take very long."""
    squares: float = 0.0


class Level(FrozenModel):
    """Speed of a server at a number of requests in flight, measured by all processes together."""

    answers: int
    in_use: int
    seconds: float
    """Of an answer, in the mean."""
    pace: float
    """Logarithm of the seconds for a token."""
    variance: float
    """Of `pace`, which is a mean."""

    @property
    def rate(self) -> float:
        """Logarithm of the tokens a second that all requests in flight get together."""
        return math.log(self.in_use) - self.pace

    def doubt(self, other: "Level") -> float:
        """Difference between two levels that may be chance."""
        return 2 * math.sqrt(self.variance + other.variance)


def level(speeds: Sequence[Speed], in_use: int) -> Level | None:
    """Sum up what all processes measured with `in_use` requests in flight; None without an answer."""
    if not (answers := sum(speed.answers for speed in speeds)):
        return None
    pace = sum(speed.pace for speed in speeds) / answers
    variance = UNKNOWN_VARIANCE
    if answers > 1:
        found = sum(speed.squares for speed in speeds) / answers - pace**2
        # a few answers that are alike by chance would leave no doubt at all
        variance = max(LEAST_VARIANCE, found * answers / (answers - 1))
    return Level(
        answers=answers,
        in_use=in_use,
        seconds=sum(speed.seconds for speed in speeds) / answers,
        pace=pace,
        variance=variance / answers,
    )


class SpeedMeter:
    """Measures one process's answers, anew at each width."""

    def __init__(self) -> None:
        self._changes = 0
        self._left_out = 0
        self.refused = 0
        self._latest: deque[tuple[float, float]] = deque(maxlen=LATEST)

    def begin(self, changes: int, left_out: int) -> None:
        """Forget what was measured at another width; the next answers, `left_out` of them, don't count."""
        if changes != self._changes:
            self._changes, self._left_out, self.refused = changes, left_out, 0
            self._latest.clear()

    def add(self, seconds: float, tokens: int) -> None:
        """Count an answer."""
        if self._left_out:
            self._left_out -= 1
        elif seconds > 0:
            self._latest.append((seconds, math.log(seconds / (tokens + SPARE_TOKENS))))

    @property
    def speed(self) -> Speed:
        return Speed(
            changes=self._changes,
            refused=self.refused,
            answers=len(self._latest),
            seconds=sum(seconds for seconds, _ in self._latest),
            pace=sum(pace for _, pace in self._latest),
            squares=sum(pace**2 for _, pace in self._latest),
        )
