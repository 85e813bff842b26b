"""Settings of a host's container engine."""

from typing import ClassVar

from pydantic import Field

from clotho.plugin_settings import PluginSettings


class ContainerSettings(PluginSettings):
    """The container engine of a worker's host."""

    plugin: ClassVar[str] = "containers"
    docker_host: str | None = None
    """The socket of this host's container engine, as unix://PATH. Empty: DOCKER_HOST, else the usual ones.

    The usual ones are those of rootless podman and Docker in XDG_RUNTIME_DIR, then those of the host."""
    warm: int = Field(default=0, ge=0)
    """Containers that a host keeps ready for each image, with the same settings, that rollouts have asked for."""
