"""Faults by phases as a Markdown table, from what cells measured."""

from collections.abc import Mapping, Sequence
from typing import Protocol

Name = tuple[str, str]
"""A cell: its fault and its phase."""


class Titled(Protocol):
    @property
    def title(self) -> str: ...


class Play(Protocol):
    """The measurements of one play of a cell."""

    @property
    def missed(self) -> list[str]:
        """The targets that were missed."""

    @property
    def recovery(self) -> float | None:
        """Seconds."""

    @property
    def footnotes(self) -> list[str]: ...


def table(
    faults: Mapping[str, Titled], phases: Mapping[str, Titled], results: Mapping[Name, Sequence[Play]]
) -> list[str]:
    """Its lines."""
    lines = [
        f"| fault | {' | '.join(phase.title for phase in phases.values())} |",
        f"|---|{'---|' * len(phases)}",
    ]
    for name, fault in faults.items():
        cells = (shown(results.get((name, phase), ())) for phase in phases)
        lines.append(f"| {fault.title} | {' | '.join(cells)} |")
    return lines


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


def kept(results: Mapping[Name, Sequence[Play]], what: str) -> str:
    """In how many cells no play missed a target."""
    good = sum(not any(play.missed for play in cell) for cell in results.values())
    plays = sum(len(cell) for cell in results.values())
    return f"In all, {good} of {len(results)} {what} are as promised, in {plays} plays."
