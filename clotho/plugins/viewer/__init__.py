"""The web pages of `clotho view`: runs, groups and rollouts of a store, for a browser on this machine."""

from clotho.plugin import Command, Plugin

PLUGIN = Plugin(
    "viewer",
    commands=(
        Command(
            "report",
            "clotho.plugins.viewer.report_command:command",
            "Write a report on a run as one HTML file, which needs nothing else to be read.",
        ),
        Command(
            "view",
            "clotho.plugins.viewer.command:command",
            "Show runs, groups and rollouts in a browser, live, at the address that it prints.",
        ),
    ),
)
