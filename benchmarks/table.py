"""A benchmark's figures as rows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure, with its unit, and what was aimed at."""

    what: str
    figure: str
    aim: str = ""
