"""Plays of cells: what each has in common, and where those of one table are kept."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from clotho.frozen_model import FrozenModel

Name = tuple[str, str]
"""A cell: its fault and its phase."""


class Play(FrozenModel):
    """The measurements of one play of a cell."""

    fault: str
    phase: str
    problem: str | None = None
    """Why there is nothing to count: the phase was never reached, or the run never completed."""
    orphans: tuple[str, ...] = ()
    recovery: float | None = None
    """Seconds until what was struck goes on."""
    seconds: float = 0.0

    @property
    def missed(self) -> list[str]:
        """The targets that were missed."""
        if self.problem is not None:
            return [self.problem]
        return [target for target, missed in self.targets.items() if missed]

    @property
    @abstractmethod
    def targets(self) -> Mapping[str, object]:
        """Each target as it reads where it is missed, and whether it is: any true value."""

    @property
    @abstractmethod
    def counts(self) -> Mapping[str, int]:
        """Counts that a table adds up in its totals."""

    @property
    @abstractmethod
    def footnotes(self) -> Sequence[str]:
        """The marks of a cell, which the table's legend explains."""


P = TypeVar("P", bound=Play)


class KeptPlays(Generic[P]):
    """Plays of one version of the code on disk. Every play of a cell is kept, and counts."""

    def __init__(self, folder: Path, kind: type[P]) -> None:
        self._folder = folder
        self._kind = kind
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, play: P) -> None:
        number = len(self.all().get((play.fault, play.phase), ()))
        file = self._folder / f"{play.fault}--{play.phase}--{number}.json"
        file.write_text(play.model_dump_json(indent=1))

    def all(self) -> Mapping[Name, Sequence[P]]:
        found: dict[Name, list[P]] = {}
        for file in sorted(self._folder.glob("*.json")):
            play = self._kind.model_validate_json(file.read_text())
            found.setdefault((play.fault, play.phase), []).append(play)
        return found
