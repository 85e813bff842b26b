"""Report of the isolation and bounds that a host enforces on its sandboxes."""

from typing import Literal

from clotho.frozen_model import FrozenModel

UNISOLATED = "allow bubblewrap to make namespaces here, or run tool workers on another machine"
"""Advice for a host whose own sandboxes can't be proved to be isolated."""


class IsolationReport(FrozenModel):
    """Isolation and bounds on this host, as `clotho doctor` shows them."""

    missing: tuple[str, ...]
    """Properties of a sandbox that couldn't be proved. Empty: isolated."""
    own_user: bool
    """Whether each sandbox has two users of its own, its commands' and its supervisor's.

    Otherwise all are the worker's, in namespaces of their own.
    """
    memory: Literal["cgroup", "unlimited"]
    processes: Literal["cgroup", "user"]
    processors: Literal["cgroup", "nice"]
    """Whether each sandbox has a share of its own, or each of its processes a lower priority than the worker's."""
    disk: Literal["disk", "file size"]
    """Bounded as a whole, or only each file by itself."""
    landlock: bool = False
    """Whether Landlock, beside the mounts, holds commands to what was writable when their sandbox began."""

    @property
    def isolated(self) -> bool:
        return not self.missing

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The bounds that `limits: required` asks for and this host can't enforce."""
        memory = () if self.memory == "cgroup" else ("memory",)
        return memory if self.disk == "disk" else (*memory, "disk")
