"""Payloads of the Temporal UI with what they refer to."""

from clotho.plugin import Command, Plugin

PLUGIN = Plugin(
    "codec",
    commands=(
        Command(
            "codec",
            "clotho.plugins.codec.command:command",
            "Let the Temporal UI show what its payloads refer to: prompts, turns, calls and rewards.",
        ),
    ),
)
