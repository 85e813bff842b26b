"""`clotho demo`: the whole chain on one machine, with crashes or a trainer if asked for."""

from clotho.plugin import Command, Plugin

PLUGIN = Plugin(
    "demo",
    commands=(
        Command(
            "demo",
            "clotho.plugins.demo.command:command",
            "Start all services, roll out file_tasks with the embedded model, and export the results.",
        ),
    ),
)
