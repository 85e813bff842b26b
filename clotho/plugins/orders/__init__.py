"""Groups that trainers order by name, and fetch as rows: over HTTP, from any language."""

from clotho.plugin import Command, Plugin

PLUGIN = Plugin(
    "orders",
    commands=(
        Command(
            "serve-rollouts",
            "clotho.plugins.orders.command:command",
            "Serve groups over HTTP to trainers that order them by name; what they ordered outlives this process.",
        ),
    ),
)
