"""Task folders in the layout of Harbor and Terminal-Bench 2: how they are read, and how their rewards are."""

from clotho.plugin import Command, Plugin

PLUGIN = Plugin(
    "task_folders",
    commands=(Command("tasks", "clotho.plugins.task_folders.command:app", "Check task folders."),),
)
