"""Sandboxes in clouds: Modal, E2B and Daytona, through the package of each."""

from clotho.plugin import Plugin, SandboxKind

PLUGIN = Plugin(
    "clouds",
    sandboxes={
        cloud: SandboxKind(
            f"clotho.plugins.clouds.config:{cloud.capitalize()}Config",
            f"clotho.plugins.clouds.opened:open_{cloud}",
        )
        for cloud in ("modal", "e2b", "daytona")
    },
    settings="clotho.plugins.clouds.accounts:CloudSettings",
)
