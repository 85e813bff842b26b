"""Where a sandbox has its workspace, its home and its `/tmp`."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Where things are for the commands of a sandbox."""

    workspace: str
    home: str
    tmp: str
    isolated: bool
    aliases: Mapping[str, str]
    """Paths of the isolated view, and what they are where there is no such view."""

    @property
    def archived(self) -> dict[str, str]:
        """What a checkpoint holds: labels in the archive and paths."""
        return {"work": self.workspace, "home": self.home, "tmp": self.tmp}


def located(path: str, aliases: Mapping[str, str]) -> str:
    """`path` with the alias that it is, or lies under, replaced."""
    for seen, real in aliases.items():
        if path == seen or path.startswith(f"{seen}/"):
            return real + path.removeprefix(seen)
    return path
