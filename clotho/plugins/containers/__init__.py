"""Sandboxes in containers of an engine on this host: Docker, or podman through its socket."""

from clotho.plugin import Plugin, SandboxKind

PLUGIN = Plugin(
    "containers",
    sandboxes={
        "docker": SandboxKind(
            "clotho.plugins.containers.config:DockerConfig",
            "clotho.plugins.containers.opening:open_containers",
        )
    },
    doctor={"machine": "clotho.plugins.containers.doctor:examine"},
    settings="clotho.plugins.containers.settings:ContainerSettings",
)
