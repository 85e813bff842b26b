"""Paths of a sandbox's workspace, home and `/tmp`."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from clotho.sandbox.places import outermost


@dataclass(frozen=True)
class Layout:
    """The paths of a sandbox's folders, as its commands see them."""

    workspace: str
    home: str
    tmp: str
    isolated: bool
    aliases: Mapping[str, str]
    """Paths of the isolated view, and what they are where there is no such view."""
    roots: Mapping[str, str] = field(default_factory=dict)
    """Further folders that commands write to: labels in the archive and paths."""
    agents: tuple[str, ...] = ()
    """Every path of a folder that the agent writes to."""
    verifying: bool = False
    """Whether the agent's links must not lead out of its folders, nor its names reach the output of commands."""
    hidden_files: str | None = None

    @property
    def archived(self) -> dict[str, str]:
        """The folders of a checkpoint: labels in the archive and paths. One that lies in another is in that one."""
        folders = {"home": self.home, "tmp": self.tmp, **self.roots}
        if self.workspace not in folders.values():
            folders = {"work": self.workspace, **folders}
        own = outermost(folders.values())
        return {label: path for label, path in folders.items() if path in own}

    def seen_path(self, path: str) -> str:
        """`path`, as the file verbs take it, as commands see it."""
        path = below_home(path)
        if path == "~" or path.startswith("~/"):
            return self.home + path[1:]
        return resolve_alias(path, self.aliases)

    def is_agents(self, path: str) -> bool:
        """Whether `path`, as the file verbs take it, is in a folder where the agent can have put anything."""
        full = posixpath.normpath(self.seen_path(path))
        return not full.startswith("/") or any(
            f"{full}/".startswith(f"{folder.rstrip('/')}/") for folder in self.agents
        )


def below_home(path: str) -> str:
    """`path` with ~ in place of $HOME: the file verbs take both."""
    return f"~{path.removeprefix('$HOME')}" if path == "$HOME" or path.startswith("$HOME/") else path


def resolve_alias(path: str, aliases: Mapping[str, str]) -> str:
    """`path` with the alias that it is, or lies under, replaced."""
    for seen, real in aliases.items():
        if path == seen:
            return real
        if path.startswith(f"{seen}/"):
            return real.rstrip("/") + path.removeprefix(seen)
    return path
