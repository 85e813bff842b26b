"""Agents that are programs with a loop of their own: harnesses, whose calls of a model Clotho answers."""

from clotho.plugin import Command, Plugin

RUNS = "clotho.plugins.harness.program:run_harness"

PLUGIN = Plugin(
    "harness",
    agents=dict.fromkeys(("mini-swe-agent", "codex", "claude-code", "opencode", "command"), RUNS),
    commands=(
        Command(
            "agents",
            "clotho.plugins.harness.command:command",
            "List the programs that --agent takes, and how each is installed where sandboxes see it.",
        ),
    ),
    run_settings="clotho.plugins.harness.settings:HarnessSettings",
)
