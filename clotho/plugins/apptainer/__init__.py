"""Sandboxes of images without an engine: Apptainer, or Singularity, makes the view of a local sandbox."""

from clotho.plugin import Plugin, SandboxKind

PLUGIN = Plugin(
    "apptainer",
    sandboxes={
        "apptainer": SandboxKind(
            "clotho.plugins.apptainer.config:ApptainerConfig",
            "clotho.plugins.apptainer.backend:open_apptainer",
        )
    },
)
