"""Paths of a sandbox's workspace, home and `/tmp`."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from clotho.errors import IsolationUnavailable
from clotho.sandbox.places import outermost

WORD = r"""(?:^|[\s=:;,|&<>(\[{`!@\\$]|\s-[A-Za-z])["']?(?P<path>%s(?:/[^\s"';|&<>)`]*)?)(?![\w-]|\.\w)"""
"""Regular expression for a path at the start of a word of a command: in quotes, after `=` or after `>`, too."""


class PathUnseen(IsolationUnavailable):
    """A command names a path that only isolated sandboxes have; the message says where its folder is."""


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
    bare: bool = False
    """Whether commands see the host, where none of the `aliases` is."""

    @property
    def archived(self) -> dict[str, str]:
        """The folders of a checkpoint: labels in the archive and paths. Outer folders bring inner ones along."""
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

    def require_seen(self, text: str, what: str) -> None:
        """Raise PathUnseen where a command's `text` names a path that only isolated sandboxes have.

        The command would find nothing there, or another's files. A verifier would take that for a wrong answer.
        """
        if not self.bare:
            return
        own = tuple(f"{folder}/" for folder in self.aliases.values())
        for seen, real in self.aliases.items():
            for found in re.finditer(WORD % re.escape(seen), text, re.MULTILINE):
                if not f"{found['path']}/".startswith(own):
                    raise PathUnseen(
                        f"{what} names {found['path']}, and without isolation there is no {seen}: its files are in "
                        f"{real}. Use relative paths or ~, or run where sandboxes are isolated"
                    )

    def is_agents(self, path: str) -> bool:
        """Whether `path`, as the file verbs take it, is in a folder where the agent can have put anything."""
        full = posixpath.normpath(self.seen_path(path))
        return not full.startswith("/") or any(
            f"{full}/".startswith(f"{folder.rstrip('/')}/") for folder in self.agents
        )


def below_home(path: str) -> str:
    """`path` with ~ in place of $HOME, which the file verbs take, too."""
    return f"~{path.removeprefix('$HOME')}" if path == "$HOME" or path.startswith("$HOME/") else path


def resolve_alias(path: str, aliases: Mapping[str, str]) -> str:
    """`path`, with what its alias stands for in place of the alias."""
    for seen, real in aliases.items():
        if path == seen:
            return real
        if path.startswith(f"{seen}/"):
            return real.rstrip("/") + path.removeprefix(seen)
    return path
