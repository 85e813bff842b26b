"""Task folders in the layout of Harbor and Terminal-Bench 2: how they are read, checked and graded."""

from clotho.plugin import Command, Plugin

PLUGIN = Plugin(
    "task_folders",
    environments={"tasks": "clotho.plugins.task_folders.sources:environment_of"},
    notice="clotho.plugins.task_folders.collection:silent_tasks",
    commands=(Command("tasks", "clotho.plugins.task_folders.command:app", "Check task folders."),),
)
