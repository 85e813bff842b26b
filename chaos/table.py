"""One table of the fault matrix: faults by phases, how its cells are played, and what is said of them."""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from benchmarks.machine import machine
from chaos.plays import Name, P, Play


class Titled(Protocol):
    @property
    def title(self) -> str: ...


@dataclass(frozen=True)
class Title:
    """A row or a column that is nothing but its title."""

    title: str


PlayAll = Callable[[Sequence[Name], Callable[[P], None], int], Coroutine[Any, Any, None]]
"""Plays cells in so many lanes, and hands over each result."""


@dataclass(frozen=True)
class Table(Generic[P]):
    name: str
    heading: str
    """The line that its part of the document begins with."""
    cells: str
    """What its totals call them."""
    faults: Mapping[str, Titled]
    phases: Mapping[str, Titled]
    kind: type[P]
    play_all: PlayAll[P]
    legend: str
    rows: str = "fault"
    """What its first column holds."""
    lacking: Callable[[], str | None] = lambda: None
    """Why this machine can play none of it."""
    there_is: Callable[[Name], bool] = lambda _: True
    """Whether there is such a cell, and this machine has what it takes for it."""
    by_name_only: bool = False
    """Whether it is played only where it is asked for."""

    def document(self, plays: Mapping[Name, Sequence[P]], version: str) -> str:
        """Its part of the fault matrix."""
        measured = (
            f"Measured on {machine()}: {len(plays)} {self.cells}, all with the same version of the code"
        )
        parts = (f"{measured} ({version}).", "\n".join(self.lines(plays)), self.totals(plays), self.legend)
        return "\n\n".join((self.heading, *(part.strip() for part in parts)))

    def lines(self, plays: Mapping[Name, Sequence[P]]) -> list[str]:
        """The table in Markdown."""
        lines = [
            f"| {self.rows} | {' | '.join(phase.title for phase in self.phases.values())} |",
            f"|---|{'---|' * len(self.phases)}",
        ]
        for name, fault in self.faults.items():
            cells = (shown(plays.get((name, phase), ())) for phase in self.phases)
            lines.append(f"| {fault.title} | {' | '.join(cells)} |")
        return lines

    def totals(self, plays: Mapping[Name, Sequence[P]]) -> str:
        """In how many cells no play missed a target, and the sum of what was counted in all plays."""
        every = [play for cell in plays.values() for play in cell]
        good = sum(not any(play.missed for play in cell) for cell in plays.values())
        counts = Counter[str]()
        for play in every:
            counts.update(play.counts)
        counted = ", ".join(f"{what} {count}" for what, count in counts.items())
        return (
            f"In all, {good} of {len(plays)} {self.cells} are as promised, in {len(every)} plays: {counted}."
        )


AnyTable = Table[Any]


def shown(plays: Sequence[Play]) -> str:
    """The worst of a cell's plays: one that missed a target isn't made good by another."""
    if not plays:
        return "–"
    missed = [play for play in plays if play.missed]
    if missed:
        often = f" ({len(missed)} of {len(plays)} plays)" if len(plays) > 1 else ""
        return f"✗ {'; '.join(missed[0].missed).replace('|', '/')}{often}"
    slowest = max(plays, key=lambda play: play.recovery or 0.0)
    recovery = "" if slowest.recovery is None else f"{slowest.recovery:g} s"
    return " ".join(filter(None, ("✓", recovery, *slowest.footnotes)))
