"""A set of tasks: those that can be rolled out, and those that can't, with why."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from clotho.errors import InvalidInput
from clotho.plugins.task_folders.folder import Task, read_task
from clotho.plugins.task_folders.sandboxes import check_sandbox
from clotho.plugins.task_folders.sources import ENVIRONMENT, task_folders
from clotho.templates import Lookup


@dataclass(frozen=True)
class Tasks:
    """The tasks of a source, by name."""

    tasks: tuple[Task, ...]
    broken: tuple[str, ...]
    """One sentence for each folder that can't be rolled out."""


def network_notice(tasks: Iterable[Task]) -> str | None:
    """What to say of tasks that name no network: Harbor gives them the internet. None where there are none."""
    silent = sum(task.network is None for task in tasks)
    if not silent:
        return None
    flag = """--set 'default_network="public"'"""
    if silent == 1:
        return f"1 task says nothing of a network, and has none: {flag} gives it one"
    return f"{silent} tasks say nothing of a network, and have none: {flag} gives them one"


def configured_network_notice(environment: str, config: Mapping[str, JsonValue]) -> str | None:
    """`network_notice` of an environment's task folders; None where its `config` decides, or it has no folders."""
    if environment != ENVIRONMENT or config.get("default_network") == "public" or config.get("host_programs"):
        return None
    # any value will do: the variables may be set on the workers alone, and only networks are read
    return network_notice(read_tasks(str(config["path"]), lambda name: "", None).tasks)


def silent_tasks(environment: str, config: Mapping[str, JsonValue]) -> str | None:
    """How many of a run's tasks say nothing of a network, where their folder is on this machine."""
    if not Path(str(config.get("path", ""))).is_dir():  # a repository is fetched by the workers alone
        return None
    with suppress(InvalidInput, OSError):  # what is wrong with the folder is the environment's to say
        return configured_network_notice(environment, config)
    return None


def read_tasks(source: str, variable: Lookup, readable: tuple[str, ...] | None = None) -> Tasks:
    """The tasks of a folder, repository or registry, as `read_task` reads them; raises InvalidInput for none."""
    tasks: dict[str, Task] = {}
    broken = []
    for folder in task_folders(source):
        try:
            task = read_task(folder, variable, readable)
            check_sandbox(task)
        except InvalidInput as error:
            broken.append(str(error))
            continue
        if task.name in tasks:
            broken.append(f"task {folder.name}: {tasks[task.name].path.name} has the name {task.name}, too")
        else:
            tasks[task.name] = task
    return Tasks(tuple(tasks.values()), tuple(broken))
