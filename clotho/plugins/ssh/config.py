"""The configuration of sandboxes through ssh."""

from typing import Literal

from clotho.sandbox.config import BackendConfig


class SshConfig(BackendConfig):
    """Sandboxes on hosts that the worker's settings name (`plugins.ssh.hosts`), not the run's."""

    kind: Literal["ssh"] = "ssh"
