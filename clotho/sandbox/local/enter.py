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
    """A prefix that joins `groups` and gives up, for good, all rights but those of `user`.

    No other process has that user. With a `supervisor` the command runs as that user instead, as root of a user
    namespace that has these two. Without a `user` it stays the caller's. No program that it runs gains rights.
    """
    joined = (str(group / "cgroup.procs") for group in groups)
    users = ("-" if each is None else str(each) for each in (user, supervisor))
    return [str(supervisor_path()), "enter", *users, str(niceness), *joined, "--"]
