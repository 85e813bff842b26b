"""The command prefix that makes a process of this host a sandbox's: its control groups, its user, its priority."""

from collections.abc import Sequence
from pathlib import Path

from clotho.sandbox.supervisor import supervisor_path


def entering(user: int | None, niceness: int = 0, groups: Sequence[Path] = ()) -> list[str]:
    """Joins `groups` and gives up all rights but those of `user`, of whom no process else exists.

    Without a user it stays the same. For good: it can't gain rights by what it runs.
    """
    joined = (str(group / "cgroup.procs") for group in groups)
    whom = "-" if user is None else str(user)
    return [str(supervisor_path()), "enter", whom, str(niceness), *joined, "--"]


def as_user(user: int | None) -> list[str]:
    """`entering` where there is anything to give up."""
    return [] if user is None else entering(user)
