"""The configuration of sandboxes through ssh."""

from typing import Literal

from clotho.frozen_model import FrozenModel


class SshConfig(FrozenModel):
    """Sandboxes on the hosts of the worker's `sandbox.ssh`: which ones is the worker's affair, not the run's."""

    kind: Literal["ssh"] = "ssh"

    @property
    def name(self) -> str:
        return self.kind

    def __str__(self) -> str:
        return self.name
