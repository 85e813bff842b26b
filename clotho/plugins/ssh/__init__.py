"""Sandboxes on a pool of hosts that are reached through ssh."""

from clotho.plugin import Plugin, SandboxKind

PLUGIN = Plugin(
    "ssh",
    sandboxes={
        "ssh": SandboxKind(
            "clotho.plugins.ssh.config:SshConfig", "clotho.plugins.ssh.backend:open_ssh", beside=False
        )
    },
    settings="clotho.plugins.ssh.address:SshSettings",
    needs={"asyncssh": "clotho-rollouts[ssh]"},
)
