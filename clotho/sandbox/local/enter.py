"""The command prefix that makes a process of this host a sandbox's: its control groups, its users, its priority."""

from collections.abc import Sequence
from pathlib import Path

from clotho.sandbox.supervisor import supervisor_path


def entering(
    user: int | None,
    supervisor: int | None = None,
    niceness: int = 0,
    groups: Sequence[Path] = (),
) -> list[str]:
    """Joins `groups` and gives up all rights but those of `user`, of whom no process else exists.

    With a `supervisor` it is that user, as root of a user namespace that has the two. Without a user it stays the
    same. For good: it can't gain rights by what it runs.
    """
    joined = (str(group / "cgroup.procs") for group in groups)
    users = ("-" if each is None else str(each) for each in (user, supervisor))
    return [str(supervisor_path()), "enter", *users, str(niceness), *joined, "--"]
