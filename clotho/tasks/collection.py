"""A folder of tasks: those that can be rolled out, and those that can't, with why."""

from dataclasses import dataclass
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.tasks.folder import Task, read_task
from clotho.templates import Lookup


@dataclass(frozen=True)
class Tasks:
    """The tasks of a folder, by name."""

    tasks: tuple[Task, ...]
    broken: tuple[str, ...]
    """One sentence for each folder that can't be rolled out."""


def read_tasks(path: Path, variable: Lookup) -> Tasks:
    """The task in folder `path`, or those in the folders below it; raises InvalidInput where there is none."""
    if not path.is_dir():
        raise InvalidInput(f"tasks {path}: there is no such folder")
    folders = [path] if (path / "task.toml").is_file() else _children(path)
    tasks: dict[str, Task] = {}
    broken = []
    for folder in folders:
        try:
            task = read_task(folder, variable)
        except InvalidInput as error:
            broken.append(str(error))
            continue
        if task.name in tasks:
            broken.append(f"task {folder.name}: {tasks[task.name].path.name} has the name {task.name}, too")
        else:
            tasks[task.name] = task
    if not tasks and not broken:
        raise InvalidInput(f"tasks {path}: no folder in it has a task.toml")
    return Tasks(tuple(tasks.values()), tuple(broken))


def _children(path: Path) -> list[Path]:
    """The folders that mean to be tasks: with some of a task's own files."""
    marks = ("task.toml", "instruction.md", "tests", "environment")
    return [
        child
        for child in sorted(path.iterdir())
        if child.is_dir() and any((child / mark).exists() for mark in marks)
    ]
